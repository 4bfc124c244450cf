"""The arguments of `queuegate keys`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse

from queuegate.gateway.command.actions import AddPlace, actions_of, add_url, age, whole_number

SUMMARY = "make, list, change and delete keys by which clients say who they are"
DESCRIPTION = """\
Make, list, change and delete the keys that clients show, in the header X-Api-Key or Authorization:
Bearer, and access keys, with which they sign as for AWS. Works while the gateway runs, and while it
does not: all gateways on the database know at once. A key names its account on every API, and may
have a rate limit. It is printed once: the database has a hash of it, or of an access key its
encrypted secret, which takes QUEUEGATE_MASTER_KEY_FILE.

examples:
  queuegate keys create shop
  queuegate keys create shop --account 111122223333 --rate 500/s --expires 2030-01-31
  queuegate keys create billing --access
  queuegate keys create --administrator
  queuegate keys list
  queuegate keys list --url http://127.0.0.1:9324
  queuegate keys rotate 17 --overlap 2d
  queuegate keys policy 17 --set shop.json
  queuegate keys delete 17
"""

_CREATE = """\
Make a key and print it. Nobody can print it again: whoever loses it gets another one. An access key
is printed as variables that AWS's tools take.

examples:
  queuegate keys create shop
  queuegate keys create shop --rate 5000/10m --json
  queuegate keys create billing --access > billing.env
  queuegate keys create shop --access --policy shop.json
  queuegate keys create --administrator
"""
_POLICY = """\
Show what a key may do, or say it: with a policy of IAM's without Principal, of 6,144 characters at
most. Where policies are asked (QUEUEGATE_POLICIES) a key with one may do what it allows and nothing
else, and a key without one everything in its account. Gateways know at once.

examples:
  queuegate keys policy 17
  queuegate keys policy 17 --set shop.json
  queuegate keys policy 17 --set - < shop.json
  queuegate keys policy 17 --remove
"""
_LIST = "List keys by number, without those that were revoked; none shows its secret."
_DELETE = """\
Delete keys, for good: `revoke` is the same. Gateways that run refuse them at once. They are listed,
with --all, for 30 days.
"""
_DISABLE = "Let gateways refuse keys, at once, until they are enabled again."
_ENABLE = "Let gateways take keys again that were disabled."
_ROTATE = """\
Give an access key another secret and print it. The one before stays good for a while, so that
clients can change over; the one before that ends.

examples:
  queuegate keys rotate 17
  queuegate keys rotate 17 --overlap 0
"""
_ROTATE_MASTER = """\
Encrypt the secrets of all access keys with the next master key: the second line of
QUEUEGATE_MASTER_KEY_FILE, which every gateway must have been started with before. All of them or
none; nobody's secret changes, and no gateway notices.

example:
  openssl rand -base64 32 >> master.key   # then restart the gateways, one after the other
  queuegate keys rotate-master
  sed -i 1d master.key                    # and restart them when it suits you
"""


def add_actions(command: argparse.ArgumentParser, add_database: AddPlace) -> None:
    """Add what `queuegate keys` can do."""

    def add_place(action: argparse.ArgumentParser) -> None:
        add_database(action)
        add_url(action)

    add = actions_of(command, add_place)
    create = add("create", "make a key", _CREATE)
    create.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="of letters, digits, periods, - and _ (administrators: one that is free)",
    )
    create.add_argument(
        "--account", metavar="ID", help="whose it is (default: that of QUEUEGATE_ACCOUNT_ID)"
    )
    create.add_argument("--rate", metavar="R", help="requests/time, such as 500/s or 5000/10m")
    create.add_argument("--expires", metavar="T", help="a date or instant of ISO 8601, in UTC")
    create.add_argument("--access", action="store_true", help="one that signs, as AWS's do")
    create.add_argument(
        "--administrator", action="store_true", help="one that signs and may do everything"
    )
    create.add_argument(
        "--policy", metavar="FILE", help="what it may do, as IAM says it (-: standard input)"
    )
    listing = add("list", "list keys", _LIST)
    listing.add_argument("--account", metavar="ID", help="only those of this account")
    listing.add_argument("--all", action="store_true", help="also those that were deleted")
    rotate = add("rotate", "give an access key another secret", _ROTATE)
    rotate.add_argument("id", type=whole_number, metavar="ID", help="as `list` shows it")
    rotate.add_argument(
        "--overlap",
        type=age,
        default="1d",
        metavar="T",
        help="how long the old secret stays good, such as 90s, 6h or 2d (default: 1d)",
    )
    policy = add("policy", "show or change what a key may do", _POLICY)
    policy.add_argument("id", type=whole_number, metavar="ID", help="as `list` shows it")
    how = policy.add_mutually_exclusive_group()
    how.add_argument("--set", metavar="FILE", help="give it this policy (-: standard input)")
    how.add_argument("--remove", action="store_true", help="let it do everything in its account")
    add("rotate-master", "encrypt all secrets with the next master key", _ROTATE_MASTER)
    changes = [
        add("disable", "refuse keys until they are enabled", _DISABLE),
        add("enable", "take disabled keys again", _ENABLE),
        add("delete", "delete keys", _DELETE),
        add("revoke", "the same", _DELETE),
    ]
    for action in changes:
        action.add_argument(
            "ids", nargs="+", type=whole_number, metavar="ID", help="as `list` shows them"
        )
    for action in (rotate, policy, *changes):
        action.add_argument("--account", metavar="ID", help="with --url: whose key it is")
    for action in (create, listing, rotate, policy, *changes):
        action.add_argument("--json", action="store_true", help="one JSON object a line")
