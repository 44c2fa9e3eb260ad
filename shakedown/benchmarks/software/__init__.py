"""The site's software: each program is found and run on every node before anything is measured with it."""
