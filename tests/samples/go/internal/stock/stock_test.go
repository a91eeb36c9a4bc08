package stock

import "testing"

func TestAdd(t *testing.T) {
	for _, name := range []string{"a pear", "fig (dried)"} {
		t.Run(name, func(t *testing.T) {
			stock := New()
			stock.Add(name)
			if stock[name] != 1 {
				t.Fatalf("there are %d, want 1", stock[name])
			}
		})
	}
}

func TestEmpty(t *testing.T) {
	if len(New()) != 0 {
		t.Fatal("there is something")
	}
}
