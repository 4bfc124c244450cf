"""All SQS actions: action -> binding."""

from __future__ import annotations

from gateway.faces.aws.face import Binding
from gateway.faces.aws.sqs import messages as aws_sqs_messages
from gateway.faces.aws.sqs import moves as aws_sqs_moves
from gateway.faces.aws.sqs import permissions as aws_sqs_permissions
from gateway.faces.aws.sqs import queues as aws_sqs_queues
from gateway.faces.aws.sqs import tags as aws_sqs_tags

BINDINGS: dict[str, Binding] = {
    **aws_sqs_messages.BINDINGS,
    **aws_sqs_moves.BINDINGS,
    **aws_sqs_permissions.BINDINGS,
    **aws_sqs_queues.BINDINGS,
    **aws_sqs_tags.BINDINGS,
}
