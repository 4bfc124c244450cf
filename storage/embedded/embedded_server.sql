-- name: set_password
-- params:
-- The password's verifier replaces 'verifier' (`verifier_of`). One line, because a server in
-- single-user mode ends a statement there.
ALTER ROLE queuegate PASSWORD 'verifier';

-- name: unmark_template0
-- params:
-- Lets the database be dropped. One line, as above.
ALTER DATABASE template0 IS_TEMPLATE false;

-- name: drop_template0
-- params:
-- Drops the database. One line, as above.
DROP DATABASE template0;

-- name: unmark_template1
-- params:
-- Lets the database be dropped. One line, as above.
ALTER DATABASE template1 IS_TEMPLATE false;

-- name: drop_template1
-- params:
-- Drops the database. One line, as above.
DROP DATABASE template1;
