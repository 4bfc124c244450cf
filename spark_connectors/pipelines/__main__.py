"""python -m spark_connectors.pipelines"""

from spark_connectors.pipelines.command.main import main

raise SystemExit(main())
