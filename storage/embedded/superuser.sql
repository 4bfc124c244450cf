-- name: set_password
-- params:
-- The password's verifier replaces 'verifier' (superuser.py). One line, because a server in
-- single-user mode ends a statement there.
ALTER ROLE queuegate PASSWORD 'verifier';
