"""STS: the identity of the caller, and temporary credentials (docs/contract/protocol.md 1.8)."""

from queuegate.protocol.shapes import ModelText, ServiceModel

_MODEL = ModelText(r"""
RoleArn = (20..2048)
SessionName = (2..64~[\w+=,.@-]*)
RoleSeconds = int(900..43200)
Tag: Key Value
PolicyArn: arn
Context: ProviderArn ContextAssertion
User: AssumedRoleId Arn
Keys: AccessKeyId SecretAccessKey SessionToken Expiration:time
Sizes: SessionTokenUtilization:int SessionTokenSize:int
Role: RoleArn!:RoleArn RoleSessionName!:SessionName

AssumeRole(*Role PolicyArns:[PolicyArn] Policy:(1..~[\u0009\u000A\u000D\u0020-\u00FF]+)
    DurationSeconds:RoleSeconds Tags:[Tag] TransitiveTagKeys:[] ExternalId SerialNumber TokenCode
    SourceIdentity:SessionName ProvidedContexts:[Context] MinimumSessionTokenSize:int) ->
    Credentials:Keys AssumedRoleUser:User PackedPolicySize:int SourceIdentity *Sizes
AssumeRoleWithWebIdentity(*Role WebIdentityToken! ProviderId PolicyArns:[PolicyArn]
    Policy:(1..2048~[\u0009\u000A\u000D\u0020-\u00FF]+) DurationSeconds:RoleSeconds
    MinimumSessionTokenSize:int) ->
    Credentials:Keys SubjectFromWebIdentityToken AssumedRoleUser:User PackedPolicySize:int Provider
    Audience SourceIdentity *Sizes
GetSessionToken(DurationSeconds:int(900..129600) SerialNumber TokenCode
    MinimumSessionTokenSize:int) -> Credentials:Keys *Sizes
# No minimum: an account of 12 digits is a key here.
GetAccessKeyInfo(AccessKeyId!:(..128~[\w]*)) -> Account
GetCallerIdentity() -> UserId Account Arn
""")
RULES = _MODEL.rules
"""Rules of the service model, except for tokens and codes, which may be any text."""

STS = ServiceModel(
    name="sts",
    versions=("2011-06-15",),
    target_prefix=None,
    json_version=None,
    xml_namespace="https://sts.amazonaws.com/doc/2011-06-15/",
    xml_prolog="",
    xml_error_detail=False,
    actions=_MODEL.actions,
)
