package notice

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Clouds whose notices are known, and the settings that are none.
const (
	Auto  = "auto"
	Off   = "off"
	aws   = "aws"
	gcp   = "gcp"
	azure = "azure"
)

// Setting says which cloud's metadata service is asked for notices. As text it is auto, off, or the name of a cloud,
// which may be followed by "=" and the URL of the service. The zero value is auto.
type Setting struct {
	cloud    string
	endpoint string // empty: the cloud's own
}

// EndpointBytes bounds the URL of a Setting.
const EndpointBytes = 256

var errSetting = errors.New("want auto, off, aws, gcp or azure, or one of these clouds with the address of its metadata service, such as aws=http://169.254.169.254")

// ParseSetting reads the text of a Setting.
func ParseSetting(text string) (Setting, error) {
	cloud, endpoint, given := strings.Cut(strings.TrimSpace(text), "=")
	s := Setting{cloud, strings.TrimSuffix(endpoint, "/")}
	switch {
	case cloud == Auto || cloud == "" && !given:
		s.cloud = ""
		fallthrough
	case cloud == Off:
		if given {
			return Setting{}, errSetting
		}
		return s, nil
	case !slices.Contains([]string{aws, gcp, azure}, cloud):
		return Setting{}, errSetting
	case !given:
		return s, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || len(endpoint) > EndpointBytes || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Setting{}, fmt.Errorf("the metadata service of %s: want a URL of at most %d bytes such as http://169.254.169.254, without user, query or fragment", cloud, EndpointBytes)
	}
	return s, nil
}

// String returns the text that ParseSetting reads.
func (s Setting) String() string {
	switch {
	case s.cloud == "":
		return Auto
	case s.endpoint == "":
		return s.cloud
	}
	return s.cloud + "=" + s.endpoint
}
