package clustertest

import "slices"

// Mesh returns the Connected of a view of the given number of members, all connected to each other.
func Mesh(members int) [][]int {
	return Rows(slices.Repeat([][]bool{slices.Repeat([]bool{true}, members)}, members))
}

// Rows returns the Connected of a view in which member i is connected to member j if matrix[i][j]
// is set.
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
