//! Tells whether the branches of a `oneOf` exclude each other, so that "one of" is the same as "any of".
//!
//! Two do if their types differ, if each is a list of constants and none is in both, or if an entry that both require
//! has such lists. A schema comes from a stranger and its references multiply what is written once, so all comparisons
//! of a document share one allowance; what is too large to compare counts as overlapping, which is the safe side.

use super::schema::size;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Most branches.
const MAX_BRANCHES: usize = 64;
/// Most constants of one list.
const MAX_CONSTANTS: usize = 64;
/// Most work for one document: about the bytes of the values that are looked at.
const MAX_WORK: usize = 2 << 20;
/// Longest chain of references that is followed.
const MAX_STEPS: usize = 8;

/// Compares branches of one document.
pub(super) struct Apart<'a> {
    document: &'a Value,
    /// Work that may still be done.
    left: usize,
}

/// What tells a branch from others.
struct Traits<'a> {
    /// Its types; whole numbers count as numbers.
    kinds: Option<HashSet<&'a str>>,
    /// All its values.
    constants: Option<HashSet<&'a Value>>,
    /// All values of its required entries, of those that are so bound.
    fixed: BTreeMap<&'a str, HashSet<&'a Value>>,
}

impl<'a> Apart<'a> {
    /// References lead into `document`.
    pub(super) fn new(document: &'a Value) -> Self {
        Self { document, left: MAX_WORK }
    }

    /// Whether surely no value fits two of these.
    pub(super) fn are_all(&mut self, branches: &'a [Value]) -> bool {
        if branches.len() > MAX_BRANCHES {
            return false;
        }
        let traits: Option<Vec<Traits<'a>>> = branches.iter().map(|branch| self.traits(branch)).collect();
        let Some(traits) = traits else { return false };
        let mut pairs = traits.iter().enumerate();
        pairs.all(|(i, a)| traits[i + 1..].iter().all(|b| self.is_pair(a, b)))
    }

    /// Takes from the allowance; `None` once there is none left.
    fn spend(&mut self, work: usize) -> Option<()> {
        let left = self.left.checked_sub(work);
        self.left = left.unwrap_or(0);
        left.map(|_| ())
    }

    fn followed(&mut self, mut value: &'a Value) -> Option<&'a Value> {
        for _ in 0..MAX_STEPS {
            let Some(text) = value.get("$ref").and_then(Value::as_str) else { break };
            self.spend(text.len())?;
            let Some(target) = text.strip_prefix('#').and_then(|at| self.document.pointer(at)) else { break };
            value = target;
        }
        Some(value)
    }

    /// `None`: there is too much to look at.
    fn traits(&mut self, branch: &'a Value) -> Option<Traits<'a>> {
        let branch = self.followed(branch)?;
        let constants = match constants(branch) {
            Some(values) => Some(self.set(values)?),
            None => None,
        };
        let mut fixed = BTreeMap::new();
        let named = branch.get("properties").and_then(Value::as_object);
        let required = branch.get("required").and_then(Value::as_array);
        if let (Some(named), Some(required)) = (named, required) {
            self.spend(named.len() + required.len())?;
            let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
            for (name, schema) in named.iter().filter(|(name, _)| required.contains(name.as_str())) {
                let schema = self.followed(schema)?;
                if let Some(values) = self::constants(schema) {
                    fixed.insert(name.as_str(), self.set(values)?);
                }
            }
        }
        Some(Traits { kinds: kinds(branch), constants, fixed })
    }

    fn set(&mut self, values: &'a [Value]) -> Option<HashSet<&'a Value>> {
        self.spend(values.iter().map(size).sum())?;
        Some(values.iter().collect())
    }

    fn is_pair(&mut self, a: &Traits<'_>, b: &Traits<'_>) -> bool {
        if let (Some(a), Some(b)) = (&a.kinds, &b.kinds)
            && a.is_disjoint(b)
        {
            return true;
        }
        if let (Some(a), Some(b)) = (&a.constants, &b.constants) {
            return self.differ(a, b);
        }
        if self.spend(a.fixed.len()).is_none() {
            return false;
        }
        let mut both = a.fixed.iter().filter_map(|(name, a)| Some((a, b.fixed.get(name)?)));
        both.any(|(a, b)| self.differ(a, b))
    }

    fn differ(&mut self, a: &HashSet<&Value>, b: &HashSet<&Value>) -> bool {
        let smaller = if a.len() < b.len() { a } else { b };
        self.spend(smaller.iter().map(|value| size(value)).sum()).is_some() && a.is_disjoint(b)
    }
}

/// The values of a schema that lists them, if they are few.
fn constants(schema: &Value) -> Option<&[Value]> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => Some(std::slice::from_ref(one)),
        (None, Some(Value::Array(values))) if values.len() <= MAX_CONSTANTS => Some(values),
        _ => None,
    }
}

fn kinds(schema: &Value) -> Option<HashSet<&str>> {
    let number = |kind| if kind == "integer" { "number" } else { kind };
    match schema.get("type")? {
        Value::String(kind) => Some([number(kind.as_str())].into()),
        Value::Array(kinds) if kinds.len() <= MAX_CONSTANTS => {
            kinds.iter().map(|kind| kind.as_str().map(number)).collect()
        }
        _ => None,
    }
}
