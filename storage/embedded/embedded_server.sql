

-- name: set_password
-- params:
-- The password's verifier replaces 'verifier' (`verifier_of`). One line, because a server in
-- single-user mode ends a statement there.
ALTER ROLE queuegate PASSWORD 'verifier';
