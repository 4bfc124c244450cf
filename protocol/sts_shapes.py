"""STS: the one action by which SDKs and tools see who they are (docs/contract/protocol.md 1.8)."""

from protocol.shapes import STRING, Action, Service, Structure

STS = Service(
    name="sts",
    versions=("2011-06-15",),
    target_prefix=None,
    json_version=None,
    xml_namespace="https://sts.amazonaws.com/doc/2011-06-15/",
    xml_prolog="",
    xml_error_detail=False,
    actions={
        "GetCallerIdentity": Action(
            "GetCallerIdentity",
            Structure({}),
            Structure({"UserId": STRING, "Account": STRING, "Arn": STRING}),
        )
    },
)
