"""Terraform with the AWS provider, against a running gateway."""
