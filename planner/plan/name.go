package plan

import (
	"slices"
	"strings"
)

// MaxNameBytes bounds a machine's name.
const MaxNameBytes = 63

// ValidName reports whether text can name a machine: 1 to MaxNameBytes letters, digits, dots, hyphens and
// underscores of ASCII.
func ValidName(text string) bool {
	return text != "" && len(text) <= MaxNameBytes && text == NameFrom(text)
}

// NameFrom returns a name like text: without the characters that no name has, cut where it is too long. It is
// empty where nothing is left.
func NameFrom(text string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
			return r
		default:
			return -1
		}
	}, text)
	return name[:min(len(name), MaxNameBytes)]
}

// mostTitle is how many letters of a product's name people see.
const mostTitle = 40

// DeviceTitle returns what people call one of a machine's devices: its product, such as "NVIDIA H200", followed by the device's own name where
// another one of the machine is the same product: "NVIDIA H200 cuda:1". It is that name alone where no product is known.
func DeviceTitle(all []DeviceProfile, name string) string {
	title, same := "", 0
	for _, d := range all {
		if d.Name == name {
			title = d.Product()
		}
	}
	for _, d := range all {
		if d.Product() == title {
			same++
		}
	}
	switch name := Clip(name, maxDeviceName); {
	case title == "":
		return name
	case same > 1:
		return title + " " + name
	}
	return title
}

// DeviceOf joins what people call a machine and one of its devices: "desk (NVIDIA H200)".
func DeviceOf(machine, title string) string { return machine + " (" + title + ")" }

// ofProducts takes out of names what makers add and what tells no two products apart.
var ofProducts = strings.NewReplacer("(R)", "", "(r)", "", "(TM)", "", "(tm)", "", "®", "", "™", "", " CPU @ ", " @ ", " Processor", "")

// Product returns the name of the product without what its maker adds, cut where it is too long; empty where it is not known.
func (d DeviceProfile) Product() string {
	name, _, _ := strings.Cut(ofProducts.Replace(d.Model), " @ ") // the clock
	words := strings.Fields(Clip(name, maxModelText))
	words = slices.DeleteFunc(words, func(w string) bool { return strings.HasSuffix(w, "-Core") })
	letters := []rune(strings.Join(words, " "))
	if len(letters) > mostTitle {
		return string(letters[:mostTitle-1]) + "…"
	}
	return string(letters)
}
