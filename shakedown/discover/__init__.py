"""A site's folder from what is there, and what differs between a folder and its cluster."""
