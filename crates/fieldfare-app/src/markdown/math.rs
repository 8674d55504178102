//! Formulas as text that one can read: `\frac{a_1}{b}` is a₁/b. No typesetting; what is not known stays as written.

/// `\( … \)` and `\[ … \]` as dollars, which the Markdown parser knows; not inside of code.
pub(super) fn dollars(source: &str) -> String {
    if !source.contains("\\(") && !source.contains("\\[") {
        return source.to_owned();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(['`', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('`') {
            let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
            let close = rest[ticks..].find(&rest[..ticks]).map_or(rest.len(), |at| ticks + at + ticks);
            out.push_str(&rest[..close]);
            rest = &rest[close..];
            continue;
        }
        let (close, mark) = match rest.as_bytes().get(1) {
            Some(b'(') => ("\\)", "$"),
            Some(b'[') => ("\\]", "$$"),
            _ => {
                let next = rest[1..].chars().next().map_or(1, |c| 1 + c.len_utf8());
                out.push_str(&rest[..next]);
                rest = &rest[next..];
                continue;
            }
        };
        match rest[2..].find(close) {
            Some(end) => {
                out.push_str(mark);
                out.push_str(rest[2..2 + end].trim());
                out.push_str(mark);
                rest = &rest[2 + end + 2..];
            }
            None => {
                out.push_str(&rest[..2]);
                rest = &rest[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

const NAMES: &[(&str, &str)] = &[
    ("alpha", "α"),
    ("beta", "β"),
    ("gamma", "γ"),
    ("delta", "δ"),
    ("epsilon", "ε"),
    ("varepsilon", "ε"),
    ("zeta", "ζ"),
    ("eta", "η"),
    ("theta", "θ"),
    ("lambda", "λ"),
    ("mu", "μ"),
    ("nu", "ν"),
    ("xi", "ξ"),
    ("pi", "π"),
    ("rho", "ρ"),
    ("sigma", "σ"),
    ("tau", "τ"),
    ("phi", "φ"),
    ("varphi", "φ"),
    ("chi", "χ"),
    ("psi", "ψ"),
    ("omega", "ω"),
    ("Gamma", "Γ"),
    ("Delta", "Δ"),
    ("Theta", "Θ"),
    ("Lambda", "Λ"),
    ("Pi", "Π"),
    ("Sigma", "Σ"),
    ("Phi", "Φ"),
    ("Psi", "Ψ"),
    ("Omega", "Ω"),
    ("times", "×"),
    ("cdot", "·"),
    ("div", "÷"),
    ("pm", "±"),
    ("mp", "∓"),
    ("leq", "≤"),
    ("le", "≤"),
    ("geq", "≥"),
    ("ge", "≥"),
    ("neq", "≠"),
    ("ne", "≠"),
    ("approx", "≈"),
    ("equiv", "≡"),
    ("sim", "∼"),
    ("propto", "∝"),
    ("infty", "∞"),
    ("sum", "∑"),
    ("prod", "∏"),
    ("int", "∫"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("in", "∈"),
    ("notin", "∉"),
    ("subset", "⊂"),
    ("subseteq", "⊆"),
    ("cup", "∪"),
    ("cap", "∩"),
    ("emptyset", "∅"),
    ("forall", "∀"),
    ("exists", "∃"),
    ("neg", "¬"),
    ("land", "∧"),
    ("lor", "∨"),
    ("to", "→"),
    ("rightarrow", "→"),
    ("leftarrow", "←"),
    ("Rightarrow", "⇒"),
    ("implies", "⇒"),
    ("iff", "⇔"),
    ("ldots", "…"),
    ("dots", "…"),
    ("cdots", "⋯"),
    ("quad", "  "),
    ("qquad", "    "),
    ("circ", "°"),
    ("degree", "°"),
    ("left", ""),
    ("right", ""),
    ("displaystyle", ""),
    ("mathbb", ""),
    ("mathbf", ""),
    ("mathrm", ""),
    ("mathcal", ""),
    ("text", ""),
    ("textbf", ""),
    ("operatorname", ""),
    ("boxed", ""),
    ("hbar", "ℏ"),
    ("ell", "ℓ"),
    ("langle", "⟨"),
    ("rangle", "⟩"),
    ("mid", "|"),
    ("lfloor", "⌊"),
    ("rfloor", "⌋"),
];

/// A formula as text.
pub(super) fn readable(formula: &str) -> String {
    let mut out = String::new();
    write(formula, &mut out, 0);
    let mut text = String::with_capacity(out.len());
    for word in out.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// How deep braces may be inside of each other; deeper ones stay as written.
const DEEPEST: usize = 16;

fn write(formula: &str, out: &mut String, depth: usize) {
    if depth > DEEPEST {
        out.push_str(formula);
        return;
    }
    let mut rest = formula;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = command(rest, out, depth),
            '^' | '_' => {
                let (inner, after) = argument(rest);
                let mut text = String::new();
                write(inner, &mut text, depth + 1);
                raise(text.trim(), c == '^', out);
                rest = after;
            }
            '{' => {
                let (inner, after) = argument(&formula[formula.len() - rest.len() - 1..]);
                write(inner, out, depth + 1);
                rest = after;
            }
            '}' => {}
            '~' | '&' => out.push(' '),
            _ => out.push(c),
        }
    }
}

/// What stands behind a backslash; the answer is the rest.
fn command<'a>(rest: &'a str, out: &mut String, depth: usize) -> &'a str {
    let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    if length == 0 {
        let Some(c) = rest.chars().next() else { return rest };
        out.push(if matches!(c, ',' | ';' | ':' | '!' | ' ' | '\\') { ' ' } else { c });
        return &rest[c.len_utf8()..];
    }
    let (name, after) = rest.split_at(length);
    match name {
        "frac" | "dfrac" | "tfrac" => {
            let (above, after) = argument(after);
            let (below, after) = argument(after);
            group(above, out, depth);
            out.push('/');
            group(below, out, depth);
            after
        }
        "sqrt" => {
            let (inner, after) = argument(after);
            out.push('√');
            group(inner, out, depth);
            after
        }
        _ => {
            match NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, text)) => out.push_str(text),
                None => {
                    // Functions are written as words: \sin is sin.
                    out.push_str(name);
                }
            }
            after
        }
    }
}

/// An argument, in parentheses if it is more than one thing.
fn group(inner: &str, out: &mut String, depth: usize) {
    let mut text = String::new();
    write(inner, &mut text, depth + 1);
    let text = text.trim();
    if text.chars().any(|c| c.is_whitespace() || matches!(c, '+' | '-' | '/' | '=' | '·' | '×')) {
        out.push('(');
        out.push_str(text);
        out.push(')');
    } else {
        out.push_str(text);
    }
}

/// The next thing: what is in braces, a command, or one character.
fn argument(rest: &str) -> (&str, &str) {
    let rest = rest.trim_start();
    match rest.chars().next() {
        Some('{') => {
            let mut depth = 0usize;
            for (at, c) in rest.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => {
                        depth -= 1;
                        if depth == 0 {
                            return (&rest[1..at], &rest[at + 1..]);
                        }
                    }
                    _ => {}
                }
            }
            (&rest[1..], "")
        }
        Some('\\') => {
            let length = 1 + rest[1..].bytes().take_while(u8::is_ascii_alphabetic).count();
            rest.split_at(length.min(rest.len()))
        }
        Some(c) => rest.split_at(c.len_utf8()),
        None => ("", ""),
    }
}

fn raise(text: &str, up: bool, out: &mut String) {
    const UP: (&str, &str) = ("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ");
    const DOWN: (&str, &str) = ("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎");
    let (from, to) = if up { UP } else { DOWN };
    let raised: Option<String> =
        text.chars().map(|c| from.chars().position(|f| f == c).and_then(|at| to.chars().nth(at))).collect();
    match raised {
        Some(raised) => out.push_str(&raised),
        None => {
            out.push(if up { '^' } else { '_' });
            if text.chars().count() > 1 {
                out.push('(');
                out.push_str(text);
                out.push(')');
            } else {
                out.push_str(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_as_text() {
        for (formula, text) in [
            (r"\frac{1}{2}", "1/2"),
            (r"\frac{a + b}{c}", "(a + b)/c"),
            (r"E = mc^2", "E = mc²"),
            (r"x_{n+1} = x_n - \frac{f(x_n)}{f'(x_n)}", "x_(n+1) = x_n - f(x_n)/f'(x_n)"),
            (r"\sqrt{x^2 + y^2}", "√(x² + y²)"),
            (r"\alpha \leq \beta \cdot \sin \theta", "α ≤ β · sin θ"),
            (r"\text{if } x \in \mathbb{R}", "if x ∈ R"),
            (r"\sum_{i=1}^{10} i", "∑_(i=1)¹⁰ i"),
            (r"\unknown{x}", "unknownx"),
            (r"{{{", ""),
            (r"\", ""),
        ] {
            assert_eq!(readable(formula), text, "{formula}");
        }
    }

    #[test]
    fn brackets_become_dollars_outside_of_code() {
        assert_eq!(dollars(r"a \(x\) b"), "a $x$ b");
        assert_eq!(dollars(r"`\(x\)` \[y\]"), r"`\(x\)` $$y$$");
        assert_eq!(dollars(r"\( open"), r"\( open");
        assert_eq!(dollars(r"\\( é\é"), r"\\( é\é");
    }

    #[test]
    fn no_input_is_too_deep() {
        let deep = format!("{}x{}", "\\sqrt{".repeat(500), "}".repeat(500));
        assert!(readable(&deep).contains('x'));
    }
}
