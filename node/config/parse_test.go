package config

// Parse is Load of content that was read already; name is for errors.
func Parse(name string, content []byte) (Config, error) {
	c := Default()
	_, err := parse(name, content, &c)
	return c.normal(), err
}
