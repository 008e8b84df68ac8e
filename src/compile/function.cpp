#include "compile/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/expect.h"

namespace fathom::compile {
namespace {

std::string shown(const Array& array) {
  return fmt::format("{}[{}]", traits(array.dtype).name, fmt::join(array.extents, ", "));
}

// What an input must be: the first condition that the array breaks, if any. Symbols are bound as they come.
std::optional<std::string> broken_guard(const Graph& graph, int input, const Array& array,
                                        std::vector<std::optional<int64_t>>& symbols) {
  const Node& node = graph[input];
  if (array.dtype != node.type.dtype)
    return fmt::format("{}.dtype == {}, and is {}", node.name, traits(node.type.dtype).name,
                       traits(array.dtype).name);
  if (array.extents.size() != node.type.shape.size())
    return fmt::format("{}.rank == {}, and is {}", node.name, node.type.shape.size(), array.extents.size());
  for (size_t axis = 0; axis < array.extents.size(); ++axis) {
    const Extent& extent = node.type.shape[axis];
    const int64_t value  = array.extents[axis];
    // A symbol alone is bound to the value; of a product every factor is bound before, or it cannot match.
    if (extent.symbols().size() == 1 && extent.coefficient() != 0 && value % extent.coefficient() == 0) {
      auto& bound          = symbols[static_cast<size_t>(extent.symbols()[0])];
      const Symbol& symbol = graph.symbols[static_cast<size_t>(extent.symbols()[0])];
      const int64_t factor = value / extent.coefficient();
      if (!bound && symbol.admits(factor)) bound = factor;
    }
    std::vector<int64_t> values;
    for (const auto& symbol : symbols) values.push_back(symbol.value_or(-1));
    const bool known = std::all_of(extent.symbols().begin(), extent.symbols().end(),
                                   [&](int symbol) { return values[static_cast<size_t>(symbol)] >= 0; });
    if (!known || extent.value(values) != value)
      return fmt::format("{}.extent({}) == {}, and is {}", node.name, axis, extent.text(graph.symbols),
                         value);
  }
  return std::nullopt;
}

std::optional<std::string> broken_guard(const Graph& graph, const std::vector<Array>& arrays,
                                        std::vector<int64_t>& symbols) {
  const std::vector<int> inputs = graph.inputs();
  std::vector<std::optional<int64_t>> bound(graph.symbols.size());
  if (inputs.size() != arrays.size())
    return fmt::format("{} inputs, and there are {}", inputs.size(), arrays.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (auto broken = broken_guard(graph, inputs[i], arrays[i], bound)) return broken;
  symbols.clear();
  for (size_t s = 0; s < bound.size(); ++s) symbols.push_back(bound[s].value_or(graph.symbols[s].min));
  return std::nullopt;
}

// From 2 on: below, an extent is a constant of its entry.
void raise_minimum(Graph& graph) {
  for (Symbol& symbol : graph.symbols)
    if (symbol.max > 1) symbol.min = std::max<int64_t>(symbol.min, 2);
}

template <class T>
void pack(const Array& array, const std::vector<int64_t>& strides, T* to) {
  std::vector<int64_t> index(array.extents.size(), 0);
  for (int64_t i = 0, n = count(array.extents); i < n; ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * strides[axis];
    to[i] = static_cast<const T*>(array.data)[offset];
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < array.extents[axis]) break;
      index[axis] = 0;
    }
  }
}

int64_t bytes_of(const Array& array) { return count(array.extents) * traits(array.dtype).bits / 8; }

bool overlap(const Array& a, const Array& b) {
  const auto begin = [](const Array& array) { return reinterpret_cast<uintptr_t>(array.data); };
  const auto end = [&](const Array& array) { return begin(array) + static_cast<uintptr_t>(bytes_of(array)); };
  return begin(a) < end(b) && begin(b) < end(a);
}

Options with_cache(Options options) {
  if (!options.cache) options.cache = std::make_shared<CompileCache>();
  return options;
}

}  // namespace

bool Array::row_major() const {
  int64_t stride = 1;
  for (size_t axis = strides.size(); axis-- > 0; stride *= extents[axis])
    if (extents[axis] != 1 && strides[axis] != stride) return false;
  return true;
}

void Function::expect_outputs(const Graph& graph, std::span<const int64_t> symbols,
                              const std::vector<Array>& inputs, const std::vector<Array>& outputs) {
  FATHOM_EXPECT(outputs.size() == graph.outputs.size(),
                fmt::format("{} has {} outputs, and {} arrays are given", graph.name, graph.outputs.size(),
                            outputs.size()));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Type& type = graph[graph.outputs[o].node].type;
    FATHOM_EXPECT(
        outputs[o].dtype == type.dtype && outputs[o].extents == values(type.shape, symbols) &&
            outputs[o].row_major(),
        fmt::format("{}: output '{}' is {}{} in rows without gaps, and the array is {}", graph.name,
                    graph.outputs[o].name, traits(type.dtype).name,
                    fmt::format("[{}]", fmt::join(values(type.shape, symbols), ", ")), shown(outputs[o])));
    for (const Array& input : inputs)
      FATHOM_EXPECT(!overlap(outputs[o], input),
                    fmt::format("{}: output '{}' lies over an input; give it memory of its own", graph.name,
                                graph.outputs[o].name));
    for (size_t other = 0; other < o; ++other)
      FATHOM_EXPECT(!overlap(outputs[o], outputs[other]),
                    fmt::format("{}: outputs '{}' and '{}' lie over each other", graph.name,
                                graph.outputs[other].name, graph.outputs[o].name));
  }
}

Function::Function(std::string name, Trace trace, Options options)
    : name_(std::move(name)), trace_(std::move(trace)), options_(with_cache(std::move(options))) {}

Function::Function(Graph graph, Options options)
    : name_(graph.name), graph_(std::move(graph)), options_(with_cache(std::move(options))) {
  expect_verified(graph_, "the program");
}

// Notes which extents have had two values. The first call's are all constants.
void Function::note_values(const std::vector<Array>& inputs) {
  seen_.resize(std::max(seen_.size(), inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t axis = 0; axis < inputs[i].extents.size(); ++axis)
      if (axis == seen_[i].size())
        seen_[i].push_back({inputs[i].extents[axis], false});
      else
        seen_[i][axis].second |= seen_[i][axis].first != inputs[i].extents[axis];
}

std::vector<Tensor> Function::traced_inputs(Program& program, const std::vector<Array>& inputs,
                                            std::vector<int64_t>& symbol_values) const {
  // What varied is a constant where it equals an extent that never did: an operation may need both to be
  // equal.
  std::set<int64_t> constants;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t axis = 0; axis < inputs[i].extents.size(); ++axis)
      if (!seen_[i][axis].second) constants.insert(inputs[i].extents[axis]);
  std::map<int64_t, Extent> symbols;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape shape;
    for (size_t axis = 0; axis < inputs[i].extents.size(); ++axis) {
      const int64_t value = inputs[i].extents[axis];
      if (!options_.symbols || !seen_[i][axis].second || value < 2 || constants.contains(value)) {
        shape.push_back(value);
        continue;
      }
      auto found = symbols.find(value);
      if (found == symbols.end()) {
        found = symbols.emplace(value, program.symbol({.name = fmt::format("s{}", symbols.size()), .min = 2}))
                    .first;
        symbol_values.push_back(value);
      }
      shape.push_back(found->second);
    }
    tensors.push_back(program.input(fmt::format("in{}", i), shape, inputs[i].dtype));
  }
  return tensors;
}

Graph Function::captured(const std::vector<Array>& inputs) const {
  Program program(name_);
  std::vector<int64_t> ignored;
  const std::vector<Tensor> tensors = traced_inputs(program, inputs, ignored);
  trace_(program, tensors);
  return program.graph();
}

// The program's own graph, with symbols of value 0 or 1 (or all, where none may stay) as constants.
Graph Function::specialised(const std::vector<Array>& inputs) const {
  std::vector<int64_t> values;
  if (const auto broken = broken_guard(graph_, inputs, values))
    throw ContractError(fmt::format("{} cannot take these inputs: {}", name_, *broken));
  Graph graph = graph_;
  for (size_t s = 0; s < values.size(); ++s) {
    if (options_.symbols && values[s] >= 2) continue;
    graph            = with_symbol(graph, static_cast<int>(s), values[s]);
    graph.symbols[s] = {.name = graph.symbols[s].name, .min = values[s], .max = values[s]};
  }
  return graph;
}

Function::Entry& Function::entry_for(const std::vector<Array>& inputs, std::vector<int64_t>& symbols) {
  const auto layouts = [&](const Entry& entry) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (entry.row_major[i] != inputs[i].row_major()) return false;
    return true;
  };
  // The entry of the last call first: where it serves, no other's guards are looked at.
  const auto serves = [&](size_t e) {
    return !broken_guard(entries_[e].executable->graph(), inputs, symbols) && layouts(entries_[e]);
  };
  for (size_t tried = 0; tried < entries_.size(); ++tried) {
    const size_t e = (last_ + tried) % entries_.size();
    if (!serves(e)) continue;
    last_ = e;
    ++entries_[e].hits;
    return entries_[e];
  }
  std::string because = "the first call";
  if (!entries_.empty()) {
    const auto broken = broken_guard(entries_.back().executable->graph(), inputs, symbols);
    because           = broken ? *broken : "the same inputs are row-major, and are not";
  }
  note_values(inputs);
  if (entries_.size() >= options_.max_entries) {
    std::string reasons;
    for (const Entry& entry : entries_) reasons += "\n  " + entry.because;
    throw ContractError(
        fmt::format("{} would be compiled a {}th time, because {}. It was before because of{}\n"
                    "Pad extents to few values, or allow symbols (Options::symbols) or more entries",
                    name_, entries_.size() + 1, because, reasons));
  }
  Graph graph = trace_ ? captured(inputs) : specialised(inputs);
  raise_minimum(graph);
  Entry entry{.because    = because,
              .executable = std::make_unique<Piecewise>(std::move(graph), *options_.cache, options_.regions,
                                                        options_.fuse)};
  for (const Array& input : inputs) entry.row_major.push_back(input.row_major());
  const auto broken = broken_guard(entry.executable->graph(), inputs, symbols);
  FATHOM_EXPECT(!broken,
                fmt::format("{}: a new entry does not serve its own call: {}", name_, broken.value_or("")));
  entries_.push_back(std::move(entry));
  last_ = entries_.size() - 1;
  return entries_.back();
}

void Function::run(const std::vector<Array>& inputs, const std::vector<Array>& outputs, ThreadPool& pool) {
  ++calls_;
  for (const Array& input : inputs)
    FATHOM_EXPECT(
        reinterpret_cast<uintptr_t>(input.data) % static_cast<size_t>(traits(input.dtype).bits / 8) == 0 &&
            (input.strides.empty() || input.strides.size() == input.extents.size()),
        fmt::format("{}: an input {} is not aligned to its numbers, or its strides are not one an axis",
                    name_, shown(input)));
  if (options_.breaks == Breaks::segment && trace_) return run_segments(inputs, outputs, pool);
  std::vector<int64_t> symbols;
  Entry& entry = entry_for(inputs, symbols);
  expect_outputs(entry.executable->graph(), symbols, inputs, outputs);
  std::vector<void*> to;
  for (const Array& output : outputs) to.push_back(output.data);
  entry.executable->run(symbols, row_major(inputs), to, pool);
}

// Where the inputs lie in rows: what is not row-major is packed.
std::vector<const void*> Function::row_major(const std::vector<Array>& inputs) {
  std::vector<const void*> from;
  packed_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    from.push_back(inputs[i].data);
    if (inputs[i].row_major()) continue;
    if (packed_[i].size() < bytes_of(inputs[i])) packed_[i] = Buffer<std::byte>(bytes_of(inputs[i]));
    if (inputs[i].dtype == DType::bf16)
      pack(inputs[i], inputs[i].strides, reinterpret_cast<bf16*>(packed_[i].data()));
    else
      pack(inputs[i], inputs[i].strides, reinterpret_cast<float*>(packed_[i].data()));
    from.back() = packed_[i].data();
  }
  return from;
}

std::vector<std::string> breaks_of(const std::string& name, const Trace& trace,
                                   const std::vector<Array>& inputs) {
  Program program(name, true);
  std::vector<Tensor> tensors;
  for (const Array& input : inputs)
    tensors.push_back(program.input(fmt::format("in{}", tensors.size()),
                                    {input.extents.begin(), input.extents.end()}, input.dtype));
  trace(program, tensors);
  return program.breaks();
}

std::vector<std::string> guards(const Function::Entry& entry) {
  const Graph& graph = entry.executable->graph();
  std::vector<std::string> guards;
  size_t i = 0;
  for (const int id : graph.inputs()) {
    const Node& node = graph[id];
    guards.push_back(fmt::format("{} is {}{}, {}", node.name, traits(node.type.dtype).name,
                                 text(node.type.shape, graph.symbols),
                                 entry.row_major[i++] ? "row-major" : "with strides of its own"));
  }
  for (const Symbol& symbol : graph.symbols)
    if (symbol.min < symbol.max)
      guards.push_back(
          fmt::format("{} in {}..{}{}", symbol.name, symbol.min, symbol.max,
                      symbol.multiple > 1 ? fmt::format(", a multiple of {}", symbol.multiple) : ""));
  return guards;
}

}  // namespace fathom::compile
