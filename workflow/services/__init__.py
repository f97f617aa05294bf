"""What can be done in the workflow. Keyword-only functions, each one transaction; the layers above only call them."""
