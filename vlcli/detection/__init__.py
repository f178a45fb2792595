"""Detection: from pictures (and given boxes) to region records; backbones, extractors, selection of proposals."""
