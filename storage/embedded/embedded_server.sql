

-- name: set_password
-- params:
-- The password's verifier replaces 'verifier' (`verifier_of`). One line, because a server in
-- single-user mode ends a statement there.
ALTER ROLE queuegate PASSWORD 'verifier';

-- name: drop_templates
-- params:
-- Drops the databases that initdb adds for CREATE DATABASE. One line each, as above.
ALTER DATABASE template0 IS_TEMPLATE false;
DROP DATABASE template0;
ALTER DATABASE template1 IS_TEMPLATE false;
DROP DATABASE template1;
