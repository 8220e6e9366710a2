"""What ``loader.py`` compares, and how: scenarios, loaders, the process of one loader, figures and tables."""
