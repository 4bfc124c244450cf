"""python -m spark_connectors.pipelines"""

from spark_connectors.pipelines.pipeline_commands import main

raise SystemExit(main())
