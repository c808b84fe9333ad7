"""Which other ways through a model exist, and what each costs and gives up."""
