// The SDK from Scala, in executors: the endpoint comes from the environment.
import scala.jdk.CollectionConverters._
import org.apache.spark.SparkContext
import software.amazon.awssdk.services.sqs.SqsClient

def fill(sc: SparkContext, queueName: String, count: Int): Unit =
  sc.parallelize(1 to count, 2).foreachPartition { numbers =>
    val sqs = SqsClient.create()
    val url = sqs.getQueueUrl(r => r.queueName(queueName)).queueUrl
    numbers.foreach(n => sqs.sendMessage(r => r.queueUrl(url).messageBody(s"scala $n")))
    sqs.close()
  }

def drain(sc: SparkContext, queueName: String): Seq[String] =
  sc.parallelize(Seq(1, 2), 2).mapPartitions { _ =>
    val sqs = SqsClient.create()
    val url = sqs.getQueueUrl(r => r.queueName(queueName)).queueUrl
    def receive() =
      sqs.receiveMessage(r => r.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(1)).messages.asScala
    Iterator.continually(receive()).takeWhile(_.nonEmpty).flatten.map { message =>
      sqs.deleteMessage(r => r.queueUrl(url).receiptHandle(message.receiptHandle))
      message.body
    }
  }.collect().toSeq

val name = sys.env("QUEUE_NAME")
fill(sc, name, 20)
val bodies = drain(sc, name)
println(s"""{"received": ${bodies.length}, "distinct": ${bodies.toSet.size}}""")
System.exit(0)
