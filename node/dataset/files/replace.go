package files

import (
	"crypto/rand"
	"errors"
	"os"
)

// Replace puts content in the place of a file in one step: whoever reads it gets all of
// the old or all of the new, after a crash too. Who may read it is the umask's to say.
func Replace(path string, content []byte) error {
	f, err := os.OpenFile(path+"."+rand.Text(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
