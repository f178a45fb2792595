"""Pictures on disk and the boxes given with them: files, tar shards, box files, class numbering."""
