// Package replica is a partition as this broker holds it.
package replica
