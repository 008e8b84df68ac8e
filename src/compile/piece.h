// Parts of a program as programs of their own, to be compiled apart and run one after another.
#pragma once

#include <string>
#include <vector>

#include "compile/graph.h"

namespace fathom::compile {

// Its symbols are those that it uses. They, inputs and outputs have names of the piece's own, so that blocks
// that compute the same are the same program.
struct Piece {
  Graph graph;
  std::vector<int> inputs;   // nodes of the whole program, in the order of the piece's inputs
  std::vector<int> outputs;  // and of its outputs
  std::vector<int> symbols;  // positions in the whole program's table
};

// What of the nodes [begin, end) makes `outputs`, which are among them. What these read of other nodes are
// inputs, but constants come along.
Piece piece_of(const Graph& graph, int begin, int end, const std::vector<int>& outputs);

// The program cut at its regions: a piece for each, and one for the nodes between two of them. Pieces whose
// values nobody reads are left out.
std::vector<Piece> pieces_of(const Graph& graph);

// What a graph computes, as text without names and places: equal for graphs that do the same with the same
// types in the same order, and for no others.
std::string content_of(const Graph& graph);

}  // namespace fathom::compile
