"""What a user types, read and checked: verbs, presets, words, help, and the sentence for each mistake."""
