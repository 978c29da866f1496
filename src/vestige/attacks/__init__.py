"""What an outsider can learn: from models to frozen results. They never train, never write."""
