//! From a block's source to what is drawn: a small tree of paragraphs, lists, tables and code.

use super::math;
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Text of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Strong.
    pub bold: bool,
    /// Emphasized.
    pub italic: bool,
    /// Code.
    pub code: bool,
    /// Struck out.
    pub strike: bool,
    /// A formula.
    pub math: bool,
    /// Where it leads.
    pub link: Option<String>,
}

/// How a column of a table is set.
pub type Align = Alignment;

/// A part of a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Text.
    Paragraph(Vec<Span>),
    /// A heading of a level from 1 to 6.
    Heading(u8, Vec<Span>),
    /// Code with the name of its language.
    Code(String, String),
    /// A formula on lines of its own.
    Math(String),
    /// A list, numbered from a number on or not at all.
    List(Option<u64>, Vec<Item>),
    /// A quote.
    Quote(Vec<Node>),
    /// A table: how its columns are set, and its rows; the first is the head.
    Table(Vec<Align>, Vec<Vec<Vec<Span>>>),
    /// A line across.
    Rule,
}

/// An item of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// A box to tick, ticked or not.
    pub task: Option<bool>,
    /// What is in it.
    pub nodes: Vec<Node>,
}

/// How deep lists and quotes may be inside of each other before the rest is drawn flat.
const DEEPEST: usize = 12;

/// The parts of a block.
pub fn parse(source: &str) -> Vec<Node> {
    let source = math::dollars(source);
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH;
    let mut builder = Builder { stack: vec![Frame::default()], ..Builder::default() };
    for event in Parser::new_ext(&source, options) {
        builder.event(event);
    }
    builder.finish()
}

/// What is being filled.
#[derive(Debug, Default)]
struct Frame {
    nodes: Vec<Node>,
    task: Option<bool>,
    items: Vec<Item>,
}

/// How columns are set, and rows of cells of text.
type Table = (Vec<Align>, Vec<Vec<Vec<Span>>>);

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    spans: Vec<Span>,
    look: Span,
    bold: usize,
    italic: usize,
    code: Option<(String, String)>,
    table: Option<Table>,
    lists: Vec<Option<u64>>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.text(&text, false, false),
            },
            Event::Code(text) => self.text(&text, true, false),
            Event::InlineMath(text) => self.text(&math::readable(&text), false, true),
            Event::DisplayMath(text) => {
                self.flush();
                self.push(Node::Math(math::readable(text.trim())));
            }
            Event::Html(text) | Event::InlineHtml(text) => {
                // Shown as it is, except for the one tag that models write for a new line in a table.
                let is_break = matches!(text.trim(), "<br>" | "<br/>" | "<br />");
                self.text(if is_break { "\n" } else { &text }, false, false);
            }
            Event::FootnoteReference(text) => self.text(&format!("[{text}]"), false, false),
            Event::SoftBreak => self.text(" ", false, false),
            Event::HardBreak => self.text("\n", false, false),
            Event::Rule => {
                self.flush();
                self.push(Node::Rule);
            }
            Event::TaskListMarker(ticked) => {
                if let Some(frame) = self.stack.last_mut() {
                    frame.task = Some(ticked);
                }
            }
        }
    }

    fn text(&mut self, text: &str, code: bool, math: bool) {
        let span = Span { text: text.to_owned(), code, math, ..self.look.clone() };
        match self.spans.last_mut() {
            Some(last)
                if Span { text: String::new(), ..last.clone() }
                    == Span { text: String::new(), ..span.clone() } =>
            {
                last.text.push_str(&span.text);
            }
            _ => self.spans.push(span),
        }
    }

    fn push(&mut self, node: Node) {
        if let Some(frame) = self.stack.last_mut() {
            frame.nodes.push(node);
        }
    }

    /// Text that stands in no paragraph (in an item of a tight list) becomes one.
    fn flush(&mut self) {
        if !self.spans.is_empty() {
            let spans = std::mem::take(&mut self.spans);
            self.push(Node::Paragraph(spans));
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Strong => self.bold += 1,
            Tag::Emphasis => self.italic += 1,
            Tag::Strikethrough => self.look.strike = true,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.look.link = Some(dest_url.to_string());
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => info.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
                self.stack.push(Frame::default());
            }
            Tag::Item => self.stack.push(Frame::default()),
            Tag::BlockQuote(_) => {
                self.flush();
                self.stack.push(Frame::default());
            }
            Tag::Table(align) => {
                self.flush();
                self.table = Some((align, Vec::new()));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some((_, rows)) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            _ => {}
        }
        self.look.bold = self.bold > 0;
        self.look.italic = self.italic > 0;
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong => self.bold = self.bold.saturating_sub(1),
            TagEnd::Emphasis => self.italic = self.italic.saturating_sub(1),
            TagEnd::Strikethrough => self.look.strike = false,
            TagEnd::Link | TagEnd::Image => self.look.link = None,
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(level) => {
                let spans = std::mem::take(&mut self.spans);
                self.push(Node::Heading(level_of(level), spans));
            }
            TagEnd::CodeBlock => {
                if let Some((language, code)) = self.code.take() {
                    self.push(Node::Code(language, code));
                }
            }
            TagEnd::Item => {
                self.flush();
                if let Some(frame) = self.pop() {
                    let item = Item { task: frame.task, nodes: frame.nodes };
                    if let Some(list) = self.stack.last_mut() {
                        list.items.push(item);
                    }
                }
            }
            TagEnd::List(_) => {
                let first = self.lists.pop().flatten();
                if let Some(frame) = self.pop() {
                    self.push(Node::List(first, frame.items));
                }
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                if let Some(frame) = self.pop() {
                    self.push(Node::Quote(frame.nodes));
                }
            }
            TagEnd::TableCell => {
                let spans = std::mem::take(&mut self.spans);
                if let Some(row) = self.table.as_mut().and_then(|(_, rows)| rows.last_mut()) {
                    row.push(spans);
                }
            }
            TagEnd::Table => {
                if let Some((align, rows)) = self.table.take() {
                    self.push(Node::Table(align, rows));
                }
            }
            _ => {}
        }
        self.look.bold = self.bold > 0;
        self.look.italic = self.italic > 0;
    }

    /// The innermost frame; the outermost stays.
    fn pop(&mut self) -> Option<Frame> {
        if self.stack.len() > 1 { self.stack.pop() } else { None }
    }

    fn finish(mut self) -> Vec<Node> {
        self.flush();
        let mut nodes = self.stack.into_iter().next().map(|frame| frame.nodes).unwrap_or_default();
        flatten(&mut nodes, 0);
        nodes
    }
}

/// Below a depth that nobody writes on purpose, lists and quotes become their text.
fn flatten(nodes: &mut [Node], depth: usize) {
    for node in nodes.iter_mut() {
        match node {
            Node::List(_, items) if depth < DEEPEST => {
                for item in items {
                    flatten(&mut item.nodes, depth + 1);
                }
            }
            Node::Quote(inner) if depth < DEEPEST => flatten(inner, depth + 1),
            Node::List(..) | Node::Quote(_) => {
                let spans = vec![Span { text: "…".to_owned(), ..Span::default() }];
                *node = Node::Paragraph(spans);
            }
            _ => {}
        }
    }
}

fn level_of(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(spans: &[Span]) -> String {
        spans.iter().map(|span| span.text.as_str()).collect()
    }

    #[test]
    fn looks_of_text() {
        let nodes = parse("A **bold** and *leaning* `code` ~~gone~~ [link](https://example.org) word");
        let Node::Paragraph(spans) = &nodes[0] else { panic!("{nodes:?}") };
        assert_eq!(plain(spans), "A bold and leaning code gone link word");
        assert!(spans[1].bold && spans[3].italic && spans[5].code && spans[7].strike);
        assert_eq!(spans[9].link.as_deref(), Some("https://example.org"));
        assert_eq!(spans[10].link, None);
    }

    #[test]
    fn lists_inside_of_lists_and_tasks() {
        let nodes = parse("3. three\n   - inner\n4. four\n");
        let Node::List(Some(3), items) = &nodes[0] else { panic!("{nodes:?}") };
        assert_eq!(items.len(), 2);
        assert!(
            matches!(&items[0].nodes[..], [Node::Paragraph(_), Node::List(None, inner)] if inner.len() == 1)
        );
        let nodes = parse("- [x] done\n- [ ] open\n");
        let Node::List(None, items) = &nodes[0] else { panic!("{nodes:?}") };
        assert_eq!((items[0].task, items[1].task), (Some(true), Some(false)));
    }

    #[test]
    fn tables_have_a_head_and_rows() {
        let nodes = parse("| a | b |\n|:--|--:|\n| 1 | **2** |\n| 3<br>4 | |\n");
        let Node::Table(align, rows) = &nodes[0] else { panic!("{nodes:?}") };
        assert_eq!(align, &[Alignment::Left, Alignment::Right]);
        assert_eq!(rows.len(), 3);
        assert!(rows[1][1][0].bold);
        assert_eq!(plain(&rows[2][0]), "3\n4");
    }

    #[test]
    fn formulas_stay_readable_and_money_is_no_formula() {
        let nodes = parse(r"The sum \( \frac{a_1}{b} \times 2^{10} \) costs $5 and $10.");
        let Node::Paragraph(spans) = &nodes[0] else { panic!("{nodes:?}") };
        assert_eq!(plain(spans), "The sum a₁/b × 2¹⁰ costs $5 and $10.");
        assert!(spans[1].math);
        assert_eq!(parse("$$x^2$$"), vec![Node::Math("x²".to_owned())]);
    }

    #[test]
    fn nothing_is_deep_enough_to_harm() {
        let nodes = parse(&format!("{} deep", ">".repeat(5_000)));
        assert!(!nodes.is_empty());
        let list: String = (0..300).map(|depth| format!("{}- x\n", " ".repeat(depth * 2))).collect();
        assert!(!parse(&list).is_empty());
    }

    #[test]
    fn unfinished_text_is_text() {
        for source in ["**bold", "`code", "[link](http", "| a |", "$x", "- ", "1.", "<br", "\\("] {
            assert!(!parse(source).is_empty(), "{source}");
        }
    }
}
