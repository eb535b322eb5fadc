"""Generated from proto/ by ./generate; not for use outside this package."""
