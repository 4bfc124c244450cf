"""The npm package sns-validator against signatures of a running gateway."""
