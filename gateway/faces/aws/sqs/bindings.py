"""All SQS actions: action -> binding."""

from __future__ import annotations

from queuegate.gateway.faces.aws.face import Binding
from queuegate.gateway.faces.aws.sqs import messages as aws_sqs_messages
from queuegate.gateway.faces.aws.sqs import moves as aws_sqs_moves
from queuegate.gateway.faces.aws.sqs import permissions as aws_sqs_permissions
from queuegate.gateway.faces.aws.sqs import queues as aws_sqs_queues
from queuegate.gateway.faces.aws.sqs import tags as aws_sqs_tags

BINDINGS: dict[str, Binding] = {
    **aws_sqs_messages.BINDINGS,
    **aws_sqs_moves.BINDINGS,
    **aws_sqs_permissions.BINDINGS,
    **aws_sqs_queues.BINDINGS,
    **aws_sqs_tags.BINDINGS,
}
