-- Groups of serial queues that are hidden, and have a place among the others when that ends: the one
-- by when their message was sent. Always false on FIFO queues, whose groups go behind the others.
ALTER TABLE fifo_groups ADD COLUMN comes_back boolean NOT NULL DEFAULT false;
