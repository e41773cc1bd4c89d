package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"pnode/checkpoint/safetensors"
)

// A folder's weights are written tensor by tensor, and read a part of a tensor at a time.
func Example() {
	dir, err := os.MkdirTemp("", "weights")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	w, err := safetensors.Create(filepath.Join(dir, "model.safetensors"), []safetensors.Tensor{
		{Name: "embed", DType: safetensors.BF16, Shape: []int{2, 3}},
		{Name: "bias", DType: safetensors.F32, Shape: []int{3}},
	}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	for name, values := range map[string][]float32{"embed": {1, 2, 3, 4, 5, 6}, "bias": {0.5, 0, -0.5}} {
		if err := w.Append(name, values); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		log.Fatal(err)
	}

	set, err := safetensors.OpenSet(dir, "model")
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	for _, t := range set.Tensors() {
		fmt.Println(t.Name, t.DType, t.Shape)
	}
	file, err := set.File("embed")
	if err != nil {
		log.Fatal(err)
	}
	row := make([]float32, 3)
	if err := file.Floats("embed", 3, row); err != nil { // the second row
		log.Fatal(err)
	}
	fmt.Println(row)
	// Output:
	// bias F32 [3]
	// embed BF16 [2 3]
	// [4 5 6]
}
