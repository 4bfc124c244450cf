-- Bytes of requests and answers that an account, or a key, may have in a window, beside requests.
ALTER TABLE quotas
  -- NULL: no limit is set; -1: any number.
  ADD COLUMN byte_count bigint,
  ADD COLUMN byte_seconds int,
  ADD CONSTRAINT quotas_bytes CHECK ((byte_count IS NULL) = (byte_seconds IS NULL)
    AND byte_count >= -1 AND byte_seconds > 0);
