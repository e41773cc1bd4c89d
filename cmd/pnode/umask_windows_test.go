package main

import "testing"

func usualUmask(*testing.T) {} // rights are inherited from the folder
