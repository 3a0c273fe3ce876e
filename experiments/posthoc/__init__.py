"""All calibrators on one public network: records and page."""
