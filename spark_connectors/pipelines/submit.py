"""The commands for spark-submit, which starts a file and no module:

spark-submit --py-files spark_connectors.zip submit.py archive --queue orders --archive DIR
"""

from spark_connectors.pipelines.pipeline_commands import main

if __name__ == "__main__":
    raise SystemExit(main())
