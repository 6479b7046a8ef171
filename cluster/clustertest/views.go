package clustertest

import "slices"

// Mesh returns the field View.Connected for the given number of members, each connected to all others.
func Mesh(members int) [][]int {
	return Rows(slices.Repeat([][]bool{slices.Repeat([]bool{true}, members)}, members))
}

// Rows returns the field View.Connected for a matrix: member i is connected to member j if
// matrix[i][j] is set.
func Rows(matrix [][]bool) [][]int {
	rows := make([][]int, len(matrix))
	for i, row := range matrix {
		for j, connected := range row {
			if connected && i != j {
				rows[i] = append(rows[i], j)
			}
		}
	}
	return rows
}
