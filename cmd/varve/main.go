// Command varve is the whole product in one binary: a broker, its tools and
// its demo. See `varve help`.
package main

func main() {}
