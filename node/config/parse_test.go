package config

// Parse is Load of content that was read already; name is for errors.
func Parse(name string, content []byte) (Config, error) {
	c, _, err := parse(name, content)
	return c, err
}
