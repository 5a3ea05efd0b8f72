package sandbox

func functionsOf(files []File) []string { return nil }
