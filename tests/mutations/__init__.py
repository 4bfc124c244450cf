"""Small mutations of the product, each with the tests that must fail under it."""
