-- name: set_password
-- params:
-- In place of 'verifier' stands what PostgreSQL keeps of the password (superuser.py). One line, since
-- it is given to a server in single-user mode, which ends a statement there.
ALTER ROLE queuegate PASSWORD 'verifier';
