"""Networks with seeded random weights, written the way exporters write them (scripts/make_models.py)."""
