// Command weir checks rules files.
package main

func main() {}
