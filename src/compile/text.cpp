#include "compile/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace fathom::compile {
namespace {

std::string list_text(const char* name, const std::vector<int64_t>& numbers) {
  return fmt::format(" {}=[{}]", name, fmt::join(numbers, ", "));
}

std::string attributes_text(const Node& node) {
  const Attributes& a = node.attributes;
  switch (node.op) {
    case Op::input:
      return fmt::format(" \"{}\"", node.name);
    case Op::constant:
      return fmt::format(" {}", a.value);
    case Op::iota:
    case Op::sum:
    case Op::reduce_max:
    case Op::permute:
    case Op::broadcast:
      return list_text("axes", a.axes);
    case Op::slice:
    case Op::pad:
      return list_text("starts", a.starts) + list_text("steps", a.steps);
    default:
      return "";
  }
}

// What stands in the way of a line; the reader adds the file and the line.
struct Unreadable {
  std::string message;
};

class Line {
 public:
  explicit Line(std::string_view text) : rest_(text.substr(0, comment(text))) { skip_blanks(); }

  bool done() const { return rest_.empty(); }
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    skip_blanks();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }
  std::string word() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    std::string word(rest_.begin(), end);
    if (word.empty()) fail("a name");
    take(word);
    return word;
  }
  std::string quoted() {
    expect("\"");
    const size_t end = rest_.find('"');
    if (end == rest_.npos) fail("a closing quote");
    std::string text(rest_.substr(0, end));
    take(rest_.substr(0, end + 1));
    return text;
  }
  template <class T>
  T number() {
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) fail("a number");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip_blanks();
    return value;
  }
  // [item, item, ...]
  template <class F>
  void list(F&& item) {
    expect("[");
    if (take("]")) return;
    do item();
    while (take(","));
    expect("]");
  }
  std::string remainder() { return std::string(std::exchange(rest_, {})); }
  bool at_number() const { return !rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_[0])); }

  [[noreturn]] void fail(const std::string& wanted) const {
    throw Unreadable{fmt::format("{} was expected at '{}'", wanted, rest_)};
  }

 private:
  // The first # outside quotes.
  static size_t comment(std::string_view text) {
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') quoted = !quoted;
      if (text[i] == '#' && !quoted) return i;
    }
    return text.npos;
  }
  void skip_blanks() {
    const size_t first = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(first == rest_.npos ? rest_.size() : first);
    while (!rest_.empty() && std::strchr(" \t\r", rest_.back())) rest_.remove_suffix(1);
  }

  std::string_view rest_;
};

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  void read(Line line, int number) {
    if (line.done()) return;
    if (line.take("program"))
      graph_.name = line.quoted();
    else if (line.take("symbol"))
      read_symbol(line);
    else if (line.take("output"))
      read_output(line);
    else if (line.take("region"))
      read_region(line);
    else
      read_node(line, number);
    if (!line.done()) line.fail("the end of the line");
  }
  Graph graph() && { return std::move(graph_); }

 private:
  void read_symbol(Line& line) {
    Symbol symbol{.name = line.word()};
    symbol.min = line.number<int64_t>();
    line.expect("..");
    symbol.max = line.number<int64_t>();
    if (line.take("multiple")) symbol.multiple = line.number<int64_t>();
    graph_.symbols.push_back(symbol);
  }

  void read_output(Line& line) {
    std::string name = line.quoted();
    line.expect("%");
    graph_.outputs.push_back({std::move(name), line.number<int>()});
  }

  void read_region(Line& line) {
    line.expect("%");
    const int first = line.number<int>();
    line.expect("..");
    line.expect("%");
    const int last = line.number<int>();
    if (last >= graph_.size())
      throw Unreadable{fmt::format("%{} stands below; a region follows its nodes", last)};
    graph_.regions.push_back({first, last + 1});
  }

  void read_node(Line& line, int number) {
    line.expect("%");
    if (const int id = line.number<int>(); id != graph_.size())
      throw Unreadable{
          fmt::format("%{} stands where %{} was expected; nodes are numbered in order", id, graph_.size())};
    line.expect("=");
    const std::string name = line.word();
    const Op* op           = find_op(name);
    if (!op) throw Unreadable{fmt::format("'{}' is no op; src/compile/ops.h lists them", name)};
    Node node{.op = *op, .place = {file_, number}};
    if (node.op == Op::input) node.name = line.quoted();
    if (node.op == Op::constant) node.attributes.value = line.number<double>();
    while (line.take("%")) node.operands.push_back(line.number<int>());
    read_list(line, "axes=", node.attributes.axes);
    read_list(line, "starts=", node.attributes.starts);
    read_list(line, "steps=", node.attributes.steps);
    node.type = read_type(line);
    if (line.take("@")) node.place = read_place(line);
    graph_.add(std::move(node));
  }

  static void read_list(Line& line, std::string_view name, std::vector<int64_t>& numbers) {
    if (line.take(name)) line.list([&] { numbers.push_back(line.number<int64_t>()); });
  }

  static Place read_place(Line& line) {
    const std::string text = line.remainder();
    const size_t colon     = text.rfind(':');
    Place place{text.substr(0, colon)};
    if (colon != text.npos) place.line = std::atoi(text.c_str() + colon + 1);
    return place;
  }

  Type read_type(Line& line) {
    const std::string name = line.word();
    const auto* found      = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                          [&](const auto& row) { return name == row.name; });
    if (found == std::end(kDTypes))
      throw Unreadable{fmt::format("'{}' is no dtype; fp32 and bf16 are", name)};
    Type type{.dtype = static_cast<DType>(found - std::begin(kDTypes))};
    line.list([&] { type.shape.push_back(read_extent(line)); });
    return type;
  }

  Extent read_extent(Line& line) {
    Extent extent(1);
    do extent = extent * (line.at_number() ? Extent(line.number<int64_t>()) : symbol(line.word()));
    while (line.take("*"));
    return extent;
  }

  Extent symbol(const std::string& name) const {
    for (size_t i = 0; i < graph_.symbols.size(); ++i)
      if (graph_.symbols[i].name == name) return Extent::of_symbol(static_cast<int>(i));
    throw Unreadable{fmt::format("'{}' is no symbol; declare it above: symbol {} 1..65536", name, name)};
  }

  const std::string& file_;
  Graph graph_;
};

}  // namespace

std::string print(const Graph& graph) {
  std::string text = fmt::format("program \"{}\"\n", graph.name);
  for (const Symbol& symbol : graph.symbols) {
    text += fmt::format("symbol {} {}..{}", symbol.name, symbol.min, symbol.max);
    text += symbol.multiple == 1 ? "\n" : fmt::format(" multiple {}\n", symbol.multiple);
  }
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::string line = fmt::format("%{} = {}", id, row(node.op).name);
    if (!node.operands.empty()) line += fmt::format(" %{}", fmt::join(node.operands, " %"));
    line += attributes_text(node) + " " + traits(node.type.dtype).name +
            compile::text(node.type.shape, graph.symbols);
    if (!node.place.file.empty()) line = fmt::format("{:<59} @ {}", line, node.place.text());
    text += line + "\n";
  }
  for (const Region& region : graph.regions)
    text += fmt::format("region %{}..%{}\n", region.begin, region.end - 1);
  for (const Output& output : graph.outputs)
    text += fmt::format("output \"{}\" %{}\n", output.name, output.node);
  return text;
}

Result<Graph> parse(std::string_view text, const std::string& file) {
  Parser parser(file);
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ++number;
    try {
      parser.read(Line(text.substr(0, end)), number);
    } catch (const Unreadable& error) {
      return Error{fmt::format("{}:{}: {}", file, number, error.message)};
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  Graph graph = std::move(parser).graph();
  if (Status status = verify(graph); !status) return Error{status.error().message};
  return graph;
}

}  // namespace fathom::compile
