# Twelve resources, by a role, in a region that is not the gateway's own. `maximum` changes for the update.

terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

variable "endpoint" {}
variable "role" {}
variable "maximum" {
  default = 65536
}

provider "aws" {
  region = "eu-central-1"
  assume_role {
    role_arn = var.role
  }
  endpoints {
    iam       = var.endpoint
    scheduler = var.endpoint
    sns       = var.endpoint
    sqs       = var.endpoint
    sts       = var.endpoint
  }
}

data "aws_caller_identity" "me" {}

resource "aws_sqs_queue" "dead" {
  name = "dead"
}

resource "aws_sqs_queue" "orders" {
  name                       = "orders"
  delay_seconds              = 5
  max_message_size           = var.maximum
  message_retention_seconds  = 86400
  receive_wait_time_seconds  = 10
  visibility_timeout_seconds = 60
  tags = {
    team = "shop"
  }
}

resource "aws_sqs_queue" "ordered" {
  name                        = "ordered.fifo"
  fifo_queue                  = true
  content_based_deduplication = true
  deduplication_scope         = "messageGroup"
  fifo_throughput_limit       = "perMessageGroupId"
}

resource "aws_sqs_queue_redrive_policy" "orders" {
  queue_url = aws_sqs_queue.orders.id
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = 4
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dead" {
  queue_url = aws_sqs_queue.dead.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.orders.arn]
  })
}

resource "aws_sqs_queue_policy" "orders" {
  queue_url = aws_sqs_queue.orders.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "topic"
      Effect    = "Allow"
      Principal = { Service = "sns.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.orders.arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_sns_topic.news.arn } }
    }]
  })
}

resource "aws_sns_topic" "news" {
  name         = "news"
  display_name = "News ${var.maximum}"
  tags = {
    team = "shop"
  }
}

resource "aws_sns_topic" "ordered" {
  name                        = "ordered.fifo"
  fifo_topic                  = true
  content_based_deduplication = true
}

resource "aws_sns_topic_policy" "news" {
  arn = aws_sns_topic.news.arn
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "owner"
      Effect    = "Allow"
      Principal = { AWS = data.aws_caller_identity.me.account_id }
      Action    = "SNS:Publish"
      Resource  = aws_sns_topic.news.arn
    }]
  })
}

resource "aws_sns_topic_subscription" "orders" {
  topic_arn            = aws_sns_topic.news.arn
  protocol             = "sqs"
  endpoint             = aws_sqs_queue.orders.arn
  raw_message_delivery = true
  filter_policy        = jsonencode({ color = ["red"] })
}

resource "aws_scheduler_schedule_group" "shop" {
  name = "shop"
}

resource "aws_scheduler_schedule" "daily" {
  name                = "daily"
  group_name          = aws_scheduler_schedule_group.shop.name
  schedule_expression = "rate(1 days)"
  flexible_time_window {
    mode = "OFF"
  }
  target {
    arn      = aws_sqs_queue.orders.arn
    role_arn = "arn:aws:iam::${data.aws_caller_identity.me.account_id}:role/shop"
    input    = jsonencode({ maximum = var.maximum })
  }
}
