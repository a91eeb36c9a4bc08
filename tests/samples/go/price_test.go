package shop

import "testing"

func TestTotal(t *testing.T) {
	t.Log("two things")
	if got := Total(3, 2); got != 6 {
		t.Errorf("Total(3, 2) = %d, want 6", got)
	}
}

func TestNothing(t *testing.T) {
	t.Skip("not today")
}
