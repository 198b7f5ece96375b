"""The page in a headless Chromium: loaded, dropped upon, computed with, drawn on, watched, read; by
pointer and by keys, wide and narrow, with keys and without. What is drawn is compared with what the
API answers, asked by the very curl lines that the page shows. run.sh says how to run it."""

import base64
import json
import os
import random
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.error

import yaml

import pictures
from browser import Browser, Page
from daemon import KEY, Daemon
from pictures import HOSTILE

BUILD = os.environ["PAGE_BUILD"]
SHOTS = f"{BUILD}/page"
SEED = int(os.environ.get("XNORD_TEST_SEED", "1"))
NAMED = ("button", "link", "textbox", "searchbox", "image", "radio", "combobox", "dialog", "region")
COMPUTED = "document.querySelector('#runs').textContent.startsWith('Medians')"
# In a page: what is not readable enough, by WCAG 2 (4.5 to 1 of text).
CONTRASTS = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 :
    ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; }
    return [255, 255, 255]; };
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const e = node.parentElement, box = e.getBoundingClientRect();
    if (!node.data.trim() || !box.width || !e.checkVisibility() || e.closest("script, option")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(`${node.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return bad; })()"""


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.makedirs(SHOTS, exist_ok=True)
        cls.work = tempfile.TemporaryDirectory()
        pictures.write_colour_network(f"{cls.work.name}/colours")
        cls.daemon = Daemon(f"{BUILD}/xnord", "--model", "digits=deploy/demo/digits",
                            "--model", f"colours={cls.work.name}/colours")
        cls.browser = Browser(os.environ["CHROMIUM"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        status = cls.daemon.stop()
        cls.work.cleanup()
        if status:
            raise AssertionError(f"the daemon ended with {status}")

    def page(self, path="/", daemon=None, **how):
        page = Page(self.browser, **how)
        self.addCleanup(page.close)
        page.open((daemon or self.daemon).url + path)
        return page

    def computed(self, **how):
        page = self.page(**how)
        page.wait(COMPUTED)
        page.wait("document.querySelector('#networks').children.length > 0")
        return page

    def check_quiet(self, page, but=()):
        complaints = [text for text in page.collect() if not any(part in text for part in but)]
        self.assertEqual(complaints, [])

    # ---- what is drawn ----

    def download(self, page, folder, name):
        page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder,
                          browserContextId=page.context)
        path = f"{folder}/{name}"
        page.click("#save")
        until = time.monotonic() + 20
        while not os.path.exists(path) or os.path.getsize(path) == 0:  # the browser reserves its name first
            self.assertLess(time.monotonic(), until, f"{name} is not saved")
            time.sleep(0.02)
            page.run("0")
        return path

    def curl(self, page, folder, selector="#curl"):
        """Runs the line that the page shows, as it stands."""
        line = page.run(f"document.querySelector('{selector}').textContent")
        done = subprocess.run(["bash", "-ec", line], cwd=folder, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr.decode()}")
        return done.stdout

    def grey(self, page, name):
        data = page.run(f"(() => {{ const c = document.querySelector('#figure-{name}');"
                        "const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
                        "let text = ''; for (let i = 0; i < data.length; i += 4)"
                        "text += String.fromCharCode(data[i]); return btoa(text); })()")
        return base64.b64decode(data)

    def check_drawn(self, page, name, values):
        drawn, expected = self.grey(page, name), pictures.shades(values)
        self.assertEqual(len(drawn), len(expected))
        worst = max(abs(a - b) for a, b in zip(drawn, expected))
        self.assertLessEqual(worst, 0.51, f"{name}: a pixel is {worst} off")
        self.assertGreater(len(set(drawn)), 1)

    def check_answers(self, page, channel=0):
        """1-bit by the curl line, plain and K by changed ones, against the pixels."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.download(page, folder, "input.f32")
            with open(path, "rb") as saved:
                data = saved.read()
            values = struct.unpack(f"<{len(data) // 4}f", data)
            self.check_drawn(page, "input", values)
            self.check_drawn(page, "signs", [1 if value >= 0 else -1 for value in values])
            line = page.run("document.querySelector('#curl').textContent")
            self.curl(page, folder)
            self.check_drawn(page, "xnor", self.plane(folder, channel))
            header = json.loads(line.split("'")[1])
            size = header["weights"]["shape"][2]
            box = {"shape": [1, 1, size, size], "datatype": "FP32", "data": [1 / size**2] * size**2}
            self.post(folder, {**header, "mode": "float"}, data)
            self.check_drawn(page, "float", self.plane(folder, channel))
            self.post(folder, {**header, "weights": box, "mode": "float"},
                      struct.pack(f"<{len(values)}f", *map(abs, values)))
            self.check_drawn(page, "k", self.plane(folder, 0))

    def post(self, folder, header, data):
        text = json.dumps(header).encode()
        subprocess.run(["curl", "-sf", f"{self.daemon.url}/conv", "-H", "Accept: application/json",
                        "-H", "Content-Type: application/octet-stream", "--data-binary", "@-",
                        "-H", f"Inference-Header-Content-Length: {len(text)}",
                        "-o", "answer.json"], cwd=folder, input=text + data, check=True)

    @staticmethod
    def plane(folder, channel):
        with open(f"{folder}/answer.json", encoding="utf-8") as answer:
            output = json.load(answer)["output"]
        size = output["shape"][2] * output["shape"][3]
        return output["data"][channel * size:(channel + 1) * size]

    def change(self, page, action):
        """Until what it asked for is computed."""
        page.run("document.querySelector('#runs').textContent = ''")
        action()
        page.wait(COMPUTED)

    # ---- the tests ----

    def test_loads_alone_and_without_complaint(self):
        page = self.computed()
        self.check_quiet(page)
        self.assertTrue(all(url.startswith((self.daemon.url, "blob:" + self.daemon.url))
                            for url in page.requests), page.requests)
        self.assertIn("ready", page.text("#server"))
        self.assertIn("cpu", page.text("#facts"))
        self.assertEqual(page.run("document.title"), "Try · xnord")
        stored = page.run("[document.cookie, localStorage.length, sessionStorage.length]")
        self.assertEqual(stored, ["", 0, 0])
        page.click("#example")
        page.wait("document.querySelector('#digit-says').textContent")
        page.screenshot(f"{SHOTS}/try-light.png")

    def test_complaints_are_noticed(self):
        """What the other tests rely on: a policy that is broken, an error, a missing file."""
        for break_it in ("document.body.setAttribute('style', 'color: red')",
                         "document.body.innerHTML = '<p>'", "console.error('no')",
                         "fetch('https://example.invalid/').catch(() => 0)", "fetch('/nothing')"):
            page = self.computed()
            try:
                page.run(break_it)
            except AssertionError:
                page.complaints.append("an exception")
            page.run("new Promise(done => setTimeout(done, 100))")
            self.assertTrue(page.collect(), break_it)
        page.run("document.body.style.color = '#aaa'")
        self.assertNotEqual(page.run(CONTRASTS), [])

    def test_what_a_visitor_sees_first(self):
        page = self.computed(height=800)
        page.wait("document.querySelector('#network .bar') !== null")
        low = page.run("['#layer', '#network', '#paper', '#scores', '#curl', '#bars .times + .times']"
                       ".map(s => [s, document.querySelector(s).getBoundingClientRect().bottom])")
        for selector, bottom in low:
            self.assertLessEqual(bottom, 800, selector)
        self.assertEqual(page.text("#invitation").split("\n")[0], "draw here")
        page.screenshot(f"{SHOTS}/first-light.png", whole=False)
        page.click("#example")
        page.wait("!document.querySelector('#invitation').checkVisibility()")
        page.click("#clear")
        page.wait("document.querySelector('#invitation').checkVisibility()")

    # In a page: what it sends to /conv from now on, [shapes of input and weights, mode, signs alone].
    RECORD = """window.sent = []; const real = fetch; window.fetch = async (path, options) => {
      const bytes = new Uint8Array(await options.body.arrayBuffer());
      const length = Number(new Headers(options.headers).get("Inference-Header-Content-Length"));
      const { input, weights, mode } = JSON.parse(new TextDecoder().decode(bytes.subarray(0, length)));
      sent.push([input.shape, weights.shape, mode, bytes.subarray(length).every(b => b === 1 || b === 255)]);
      return real(path, options); }"""

    def test_the_race_is_of_layers_that_were_computed(self):
        page = self.computed()
        page.wait("document.querySelector('#network .bar') !== null")
        page.wait("!document.querySelector('#race').disabled")
        page.run(self.RECORD)
        page.click("#race")
        page.wait("document.querySelector('#race').disabled")
        page.wait("!document.querySelector('#race').disabled")
        stages = [(64, 64, 56, 1), (64, 128, 56, 2), (128, 128, 28, 1), (128, 256, 28, 2),
                  (256, 256, 14, 1), (256, 512, 14, 2), (512, 512, 7, 1)]
        layers = [[[1, c, s, s], [o, c, 3, 3], mode, True]
                  for c, o, s, _ in [(256, 256, 14, 1), *stages] for mode in ("xnor", "float")]
        sent = page.run("sent")
        self.assertTrue(all(sent.count(layer) == 6 * layers.count(layer) for layer in layers), sent)
        self.assertEqual(len(sent), 6 * len(layers))
        for name, count in (("layer", 1), ("network", 16)):
            widths = page.run(f"[...document.querySelectorAll('#{name} .bar')].map(bar => [...bar.children]"
                              ".map(part => part.getBoundingClientRect().width))")
            self.assertEqual([len(parts) for parts in widths], [count, count])
            bits, floats = map(sum, widths)
            times, word = page.text(f"#{name}-ratio").split("× ")
            self.assertAlmostEqual(float(times), max(bits, floats) / min(bits, floats), delta=0.06 * float(times))
            self.assertEqual(word, "faster" if floats > bits else "slower")
        self.assertEqual(page.run("getComputedStyle(document.querySelector('#layer .bar')).animationName"), "grow")
        self.assertIn("fp32 on cpu", page.text("#race-by"))
        self.check_quiet(page)

    def test_who_watches_does_not_race(self):
        page = self.page("/#watch")
        page.wait(COMPUTED)
        page.run("new Promise(done => setTimeout(done, 300))")
        self.assertEqual(page.run("document.querySelectorAll('.lanes .bar, #race:disabled').length"), 0)
        page.click("nav [data-view=try]")
        page.wait("document.querySelector('#layer .bar') !== null")

    def test_every_sample_and_kernel_is_drawn_as_the_server_answers(self):
        page = self.computed()
        self.check_answers(page)
        for sample in ("Rings", "Letters"):
            self.change(page, lambda s=sample: page.click(f"#samples [data-name={s}]"))
            self.check_answers(page)
        for kernel in (1, 3):
            self.change(page, lambda k=kernel: page.click(f"#kernel-{k}"))
            self.check_answers(page)
        self.change(page, lambda: page.run("document.querySelector('#centre').value = 'whole',"
                                           "document.querySelector('#centre').dispatchEvent(new Event('change'))"))
        self.check_answers(page)
        self.change(page, lambda: page.run("document.querySelector('#side').value = '128',"
                                           "document.querySelector('#side').dispatchEvent(new Event('change'))"))
        self.check_answers(page)
        self.check_quiet(page)

    def test_the_bank_of_filters(self):
        page = self.computed()
        self.change(page, lambda: page.click("#kernel-2"))
        self.assertEqual(page.run("document.querySelectorAll('#channels button').length"), 8)
        for channel in (0, 5):
            page.click(f"#channels button:nth-child({channel + 1})")
            self.check_answers(page, channel)
        page.screenshot(f"{SHOTS}/gabor-light.png")
        self.check_quiet(page)

    def test_signs_are_turned_by_clicking(self):
        page = self.computed()
        before = page.run("[...document.querySelectorAll('#kernel button')].map(b => b.ariaPressed)")
        self.change(page, lambda: page.click("#kernel button:nth-child(5)"))
        self.assertTrue(page.run("document.querySelector('#kernel-3').checked"))
        after = page.run("[...document.querySelectorAll('#kernel button')].map(b => b.ariaPressed)")
        turned = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
        self.assertEqual(turned, [4])
        header = json.loads(page.text("#curl").split("'")[1])
        self.assertEqual(header["weights"]["data"], [1 if p == "true" else -1 for p in after])
        self.check_answers(page)
        self.check_quiet(page)

    def test_hasty_clicks(self):
        """Of many things asked for without waiting, what is shown is the last one."""
        chance = random.Random(SEED)
        page = self.computed()
        choices = [f"#samples button:nth-child({i})" for i in (1, 2, 3)] + \
                  [f"#kernel-{i}" for i in range(4)] + ["#kernel button", "#repeat", "#network-0", "#example",
                                                        "nav [data-view=watch]", "nav [data-view=try]"]
        for _ in range(3):
            for _ in range(20):
                page.click(chance.choice(choices))
            page.click(f"#samples button:nth-child({chance.randrange(1, 4)})")
            self.change(page, lambda: page.click(f"#kernel-{chance.choice((0, 1, 3))}"))
            self.assertEqual(page.run("document.querySelector('#convolution').getAttribute('aria-busy')"), "false")
            self.check_answers(page)
        self.check_quiet(page)

    def drop(self, page, path):
        left, top, width, height = page.box("#drop")
        for kind in ("dragEnter", "dragOver", "drop"):
            page.call("Input.dispatchDragEvent", type=kind, x=left + width / 2, y=top + height / 2,
                      data={"items": [], "files": [path], "dragOperationsMask": 1})

    def test_a_dropped_picture(self):
        rows = pictures.noise(SEED, 128)
        page = self.computed()
        self.change(page, lambda: page.run("document.querySelector('#side').value = '128',"
                                           "document.querySelector('#side').dispatchEvent(new Event('change'))"))
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/noise.png"
            with open(path, "wb") as out:
                out.write(pictures.png(128, 128, lambda x, y: rows[y][x]))
            self.change(page, lambda: self.drop(page, path))
            with open(self.download(page, folder, "input.f32"), "rb") as saved:
                got = struct.unpack("<16384f", saved.read())
            worst = max(abs(a - b) for a, b in zip(got, pictures.minus_local_mean(rows)))
            self.assertLess(worst, 1e-5, f"seed {SEED}")
            self.check_answers(page)
            with open(f"{folder}/text.png", "w", encoding="utf-8") as out:
                out.write("no picture")
            self.drop(page, f"{folder}/text.png")
            page.wait("document.querySelector('#problem').textContent.includes('text.png')")
            self.check_answers(page)
        self.check_quiet(page)

    def test_a_network_says_what_the_picture_is(self):
        page = self.computed()
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/red.png"
            with open(path, "wb") as out:
                out.write(pictures.png(40, 60, lambda x, y: (250, 30 + y, x)))
            field = page.call("Runtime.evaluate", expression="document.querySelector('#file')")
            page.call("DOM.setFileInputFiles", files=[path], objectId=field["result"]["objectId"])
            page.click("#network-0")
            page.wait("document.querySelector('#classes .best b')?.textContent === 'red'")
            shown = page.run("[...document.querySelectorAll('#classes li')].map(li => "
                             "[li.querySelector('b').textContent, li.querySelector('span').textContent])")
            answer = json.loads(self.curl(page, folder))
            expected = [entry.split(":") for entry in answer["outputs"][0]["data"]]
            self.assertEqual(shown, [[label, f"{float(score):.3f}"] for score, _, label in expected])
            # Of a drawn sample, what is sent can be saved.
            page.click("#samples button")
            page.wait("document.querySelector('#curl').textContent.includes('picture.png')")
            self.download(page, folder, "picture.png")
            answer = json.loads(self.curl(page, folder))
            self.assertEqual(len(answer["outputs"][0]["data"]), 3)
        self.assertFalse(page.run("document.querySelector('#convolution').checkVisibility()"))
        page.screenshot(f"{SHOTS}/network-light.png")
        self.change(page, lambda: page.click("#kernel-0"))
        self.check_answers(page)
        self.check_quiet(page)

    def test_every_network_takes_what_is_dropped(self):
        page = self.computed()
        names = page.run("[...document.querySelectorAll('#networks span')].map(e => e.textContent)")
        self.assertEqual(sorted(names), ["colours", "digits"])
        # By a canvas of the browser: a JPEG all of green, and a 7 in a picture.
        coded = page.run("""Promise.all([["image/jpeg", "#0b2", "#0b2"], ["image/png", "#fff", "#111"]].map(
            ([type, paper, ink]) => new Promise(done => { const c = new OffscreenCanvas(240, 200), d = c.getContext("2d");
              d.fillStyle = paper; d.fillRect(0, 0, 240, 200); d.strokeStyle = ink; d.lineWidth = 16; d.beginPath();
              d.moveTo(80, 44); d.lineTo(160, 44); d.lineTo(110, 150); d.stroke();
              c.convertToBlob({ type }).then(blob => { const r = new FileReader();
                r.onload = () => done(r.result.split(",")[1]); r.readAsDataURL(blob); }); })))""")
        with tempfile.TemporaryDirectory() as folder:
            for name, network, label, data in (("green.jpg", "colours", HOSTILE, coded[0]), ("7.png", "digits", "7", coded[1])):
                with open(f"{folder}/{name}", "wb") as out:
                    out.write(base64.b64decode(data))
                page.click(f"#network-{names.index(network)}")
                self.drop(page, f"{folder}/{name}")
                page.wait(f"document.querySelector('#classes .best b')?.textContent === {json.dumps(label)}")
                answer = json.loads(self.curl(page, folder))
                best = answer["outputs"][0]["data"][0].split(":", 2)
                self.assertEqual(best[2], label)
                self.assertEqual(page.text("#classes .best span"), f"{float(best[0]):.3f}")
        self.check_quiet(page)

    def draw(self, page, points):
        left, top, width, height = page.box("#paper")
        at = [(left + x / 256 * width, top + y / 256 * height) for x, y in points]
        page.mouse("mousePressed", *at[0])
        for x, y in at[1:]:
            page.mouse("mouseMoved", x, y)
        page.mouse("mouseReleased", *at[-1])

    def scores(self, page):
        return page.run("[...document.querySelectorAll('#scores span')].map(e => Number(e.textContent))")

    def settled(self, page, label):
        page.wait(f"document.querySelector('#digit-says').textContent === 'It reads {label}.'")

    def scores_at_rest(self, page):
        """Those of the whole drawing: answers to parts of it come while the pen moves."""
        scores, since = self.scores(page), time.monotonic()
        while time.monotonic() - since < 0.5:
            time.sleep(0.05)
            now = self.scores(page)
            if now != scores:
                scores, since = now, time.monotonic()
        return scores

    def test_a_drawn_digit_moves_the_scores(self):
        page = self.computed()
        self.draw(page, [(72, 56), (110, 56), (150, 56), (186, 56)])
        page.wait("document.querySelector('#digit-says').textContent")
        half = self.scores_at_rest(page)
        self.draw(page, [(186, 56), (170, 90), (150, 130), (130, 170), (116, 208)])
        self.settled(page, 7)
        whole = self.scores_at_rest(page)
        self.assertNotEqual(half, whole)
        self.assertEqual(whole.index(max(whole)), 7)
        self.assertAlmostEqual(sum(whole), 1, delta=0.01)
        answer = json.loads(self.curl(page, self.work.name, "#digit-curl"))
        expected = {int(index): float(score) for score, index, _ in
                    (entry.split(":") for entry in answer["outputs"][0]["data"])}
        self.assertEqual(whole, [round(expected[i], 3) for i in range(10)])
        page.click("#clear")
        page.wait("document.querySelector('#digit-says').textContent === ''")
        self.assertEqual(self.scores(page), [0] * 10)
        self.check_quiet(page)

    def test_without_networks_it_says_how_to_serve_one(self):
        daemon = Daemon(f"{BUILD}/xnord")
        self.addCleanup(daemon.stop)
        page = self.page(daemon=daemon)
        page.wait(COMPUTED)
        page.wait("document.querySelector('#no-digits').checkVisibility()")
        command = page.text("#serve")
        self.assertTrue(command.startswith("build/xnord --model "))
        self.assertTrue(os.path.exists(command.split("=")[1] + "/config.json"))
        self.assertFalse(page.run("document.querySelector('#paper').checkVisibility()"))
        self.check_quiet(page)

    def test_keys_are_asked_for_and_kept_in_memory(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(KEY + "\n")
            keys.flush()
            daemon = Daemon(f"{BUILD}/xnord", "--api-keys-file", keys.name,
                            "--model", "digits=deploy/demo/digits")
        self.addCleanup(daemon.stop)
        page = self.page(daemon=daemon)
        page.wait("document.querySelector('#key-dialog').open")
        self.assertEqual(page.run("document.activeElement.id"), "key")
        page.screenshot(f"{SHOTS}/key-light.png", whole=False)
        page.click("#key-cancel")
        page.wait("document.querySelector('#key-button').checkVisibility()")
        page.click("#key-button")
        for key in ("a-wrong-key-0123456789", KEY):
            page.wait("document.querySelector('#key-dialog').open")
            page.wait("document.activeElement.id === 'key'")
            page.call("Input.insertText", text=key)
            page.key("Enter")
            if key != KEY:
                page.wait("document.querySelector('#key-problem').textContent")
        page.wait(COMPUTED)
        self.assertIn("$XNORD_KEY", page.text("#curl"))
        page.click("nav [data-view=docs]")
        page.wait("document.querySelectorAll('.route').length > 20")
        self.assertTrue(self.send(page, "listWeights").startswith("200"))
        page.click("nav [data-view=watch]")
        page.wait("document.querySelector('#watch-state').textContent === 'live'")
        everything = page.run("document.documentElement.outerHTML + document.querySelector('#key').value +"
                              "document.cookie + JSON.stringify([localStorage, sessionStorage, history.state]) + location")
        self.assertNotIn(KEY, everything)
        self.assertFalse(any(KEY in url for url in page.requests))
        self.check_quiet(page, but=["401"])
        page.call("Page.reload")
        page.wait("document.querySelector('#key-dialog')?.open")

    def test_by_keys_alone(self):
        page = self.computed()
        seen = []
        for _ in range(60):
            page.key("Tab")
            at = page.run("(() => { const e = document.activeElement, s = getComputedStyle(e), b = e.getBoundingClientRect();"
                          "const around = e.closest('.drop') ? getComputedStyle(e.closest('.drop')) : s;"
                          "return [e === document.body ? null : e.id || e.textContent.trim() || e.tagName, around.outlineStyle, b.right > 0]; })()")
            if at[0] is None:
                break
            self.assertNotEqual(at[1], "none", f"no outline at {at[0]}")
            self.assertTrue(at[2], f"{at[0]} is out of sight")
            seen.append(at[0])
        self.assertEqual(seen[0], "Skip to content")
        for wanted in ("kernel-0", "figures", "repeat", "save", "copy", "paper", "file", "side"):
            self.assertIn(wanted, seen)
        page.run("document.querySelector('#kernel-0').focus()")
        self.change(page, lambda: page.key("ArrowDown"))
        self.assertTrue(page.run("document.querySelector('#kernel-1').checked"))
        page.run("document.querySelector('#kernel button').focus()")
        self.change(page, lambda: page.key(" "))
        self.assertTrue(page.run("document.querySelector('#kernel-3').checked"))
        self.assertEqual(page.run("document.activeElement.getAttribute('aria-label')"),
                         "row 1, column 1: plus")
        self.check_answers(page)
        page.run("document.querySelector('#figures').focus()")
        for arrow in ("ArrowRight", "ArrowRight", "ArrowUp"):
            page.key(arrow)
        self.assertIn("x 130, y 127", page.text("#probe").replace("\n", " "))
        page.run("document.querySelector('#paper').focus()")
        for name in ["ArrowUp"] * 6 + [" "] + ["ArrowDown"] * 12 + [" "]:
            page.key(name)
        self.settled(page, 1)
        page.run("document.querySelector('nav [data-view=watch]').focus()")
        page.key("Enter")
        page.wait("document.querySelector('#watch').checkVisibility()")
        self.check_quiet(page)

    def test_everything_has_a_name(self):
        page = self.computed()
        page.click("#example")
        for view in ("try", "watch", "docs"):
            page.click(f"nav [data-view={view}]")
            page.wait(f"document.querySelector('#{view}').checkVisibility()")
            nodes = page.call("Accessibility.getFullAXTree")["nodes"]
            nameless = [node["role"]["value"] for node in nodes if not node.get("ignored")
                        and node["role"]["value"] in NAMED and not node.get("name", {}).get("value")]
            self.assertEqual(nameless, [], view)
            levels = page.run("[...document.querySelectorAll('h1')].filter(h => h.checkVisibility()).length")
            self.assertEqual(levels, 1, view)

    def test_narrow_dark_and_still(self):
        for width, dark in ((320, False), (360, True), (768, True), (1280, True)):
            page = self.computed(width=width, dark=dark, still=True)
            page.click("#example")
            page.wait("document.querySelector('#digit-says').textContent")
            page.wait("document.querySelector('#layer .bar') !== null")
            page.run("document.querySelector('#digit-curl-box').open = true")
            for view in ("try", "watch", "docs"):
                page.click(f"nav [data-view={view}]")
                if view == "docs":
                    page.wait("document.querySelectorAll('.route').length > 20")
                    self.open_documents(page)
                if view == "watch":
                    page.wait("document.querySelector('.plot .legend span') !== null")
                wide = page.run("[document.documentElement.scrollWidth, innerWidth]")
                self.assertLessEqual(wide[0], wide[1], f"{view} at {width}")
                self.assertEqual(page.run(CONTRASTS), [], f"{view}, dark: {dark}")
                page.screenshot(f"{SHOTS}/{view}-{width}-{'dark' if dark else 'light'}.png",
                                whole=view != "docs")
            self.assertTrue(page.run("[...document.querySelectorAll('*')].every(e => getComputedStyle(e).animationName "
                                     "=== 'none' && getComputedStyle(e, '::before').transitionDuration === '0s')"))
            self.check_quiet(page)

    @staticmethod
    def open_documents(page):
        """All routes, and three layers of what is in them."""
        for selector in [".route"] + [".route details:not([open])"] * 3:
            page.run(f"document.querySelectorAll({json.dumps(selector)}).forEach(e => e.open = true),"
                     "new Promise(done => setTimeout(done, 100))")

    def test_documents_are_those_of_the_file(self):
        page = self.page("/docs#listWeights")
        page.wait("document.querySelector('#api-listWeights')?.open")
        document = yaml.safe_load(self.daemon.get("/openapi.yaml"))
        parsed = page.run("Promise.all([import('/docs.js'), fetch('/openapi.yaml').then(r => r.text())])"
                          ".then(([docs, text]) => docs.parseYaml(text))")
        self.assertEqual(parsed, document)
        operations = {f"{method.upper()} {path}" for path, item in document["paths"].items()
                      for method in item if method in ("get", "put", "post", "delete")}
        shown = page.run("[...document.querySelectorAll('.route')].map(e => "
                         "`${e.querySelector('.method').textContent} ${e.querySelector('code').textContent}`)")
        self.assertEqual(sorted(shown), sorted(operations))
        ids = page.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
        self.assertEqual(sorted(ids), sorted(set(ids)))
        styles = page.run("[...document.querySelectorAll('.route')].map(e => (s => [s.display, s.color, "
                          "s.fontSize, s.marginLeft].join())(getComputedStyle(e)))")
        self.assertEqual(len(set(styles)), 1)
        self.open_documents(page)
        text = page.run("document.querySelector('#routes').textContent")
        for word in ("padding", "output_datatype", "Inference-Header-Content-Length", "ConvAnswer",
                     "too_many_requests", "default"):
            self.assertIn(word, text)
        page.run("document.querySelector('#find').value = 'unload',"
                 "document.querySelector('#find').dispatchEvent(new Event('input'))")
        page.wait("[...document.querySelectorAll('.route')].filter(e => e.checkVisibility()).length === 1")
        self.check_quiet(page)

    def send(self, page, operation, **fields):
        """What the form of an operation shows after it has sent these."""
        form = f"#api-{operation} .sender"
        page.run(f"document.querySelector('#api-{operation}').open = true, new Promise(done => setTimeout(done, 50))")
        for name, value in fields.items():
            page.run(f"document.querySelector('{form} [name={name}]').value = {json.dumps(value)}")
        page.click(f"{form} button")
        return page.wait(f"(text => text === '…' ? '' : text)(document.querySelector('{form} pre').textContent)")

    def test_documents_send_what_they_show(self):
        page = self.page("/docs")
        page.wait("document.querySelectorAll('.route').length > 20")
        page.wait("document.querySelector('#networks').children.length > 0")
        answer = self.send(page, "conv")
        self.assertTrue(answer.startswith("200 OK\n"), answer)
        self.assertEqual(json.loads(answer.split("\n\n")[1])["output"]["data"], [5])
        self.assertIn('"field":"mode"', self.send(page, "conv", body='{"mode": "no"}'))
        self.assertIn("415 ", self.send(page, "conv", headers="Content-Type: text/none\nX-Request-Id: mine"))
        answer = self.send(page, "putWeights", path="/weights/tried")
        self.assertTrue(answer.startswith("201"), answer)
        self.assertIn("tried", self.send(page, "listWeights"))
        self.assertTrue(self.send(page, "deleteWeights", path="/weights/tried").startswith("204"))
        self.assertIn('"name": "colours"', self.send(page, "model"))
        # A file as the body, and markup in the answer, which stays text.
        form = page.call("Runtime.evaluate", expression="document.querySelector('#api-infer').open = true")
        page.wait("document.querySelector('#api-infer .sender') !== null")
        with tempfile.NamedTemporaryFile(suffix=".png") as out:
            out.write(pictures.png(20, 20, lambda x, y: (0, 200, 0)))
            out.flush()
            form = page.call("Runtime.evaluate", expression="document.querySelector('#api-infer [name=file]')")
            page.call("DOM.setFileInputFiles", files=[out.name], objectId=form["result"]["objectId"])
            page.wait("document.querySelector('#api-infer [name=headers]').value === 'Content-Type: image/png'")
            self.assertIn(HOSTILE, self.send(page, "infer", path="/v2/models/colours/infer?classes=1"))
        self.assertEqual(page.run("document.querySelectorAll('#api-infer pre *').length"), 0)
        self.check_quiet(page, but=["400", "415", "422"])

    def test_documents_send_to_this_server_alone(self):
        page = self.page("/docs")
        page.wait("document.querySelectorAll('.route').length > 20")
        page.wait("document.querySelector('#networks').children.length > 0")
        for path in ("//example.invalid/x", "/\\example.invalid/", "https://example.invalid/", "weights", "",
                     "blob:https://example.invalid/x", "javascript:alert(1)"):
            self.assertIn("no path of this server", self.send(page, "listWeights", path=path), path)
        self.assertIn("{name}", self.send(page, "getWeights"))
        self.assertIn("no header", self.send(page, "listWeights", path="/weights", headers="none"))
        page.collect()
        self.assertFalse([url for url in page.requests if not url.startswith((self.daemon.url, "blob:" + self.daemon.url))])
        self.check_quiet(page)

    def test_a_daemon_that_ends(self):
        daemon = Daemon(f"{BUILD}/xnord")
        page = self.page(daemon=daemon)
        page.wait("document.querySelector('#server').textContent.startsWith('ready')")
        self.assertEqual(daemon.stop(), 0)
        page.wait("document.querySelector('#server.unready')?.textContent.startsWith('not reachable')")

    def plot(self, page, title):
        return page.run(f"document.querySelector('section[aria-label=\"{title}\"] svg').getAttribute('aria-label')")

    def test_watching(self):
        page = self.page("/#watch")
        page.wait("document.querySelector('.plot .legend span') !== null")
        body = {"inputs": [{"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": [7] * 128}]}
        for _ in range(25):
            self.daemon.infer("digits", body)
        with self.assertRaises(urllib.error.HTTPError):
            self.daemon.infer("digits", {})
        page.wait("document.querySelector('section[aria-label=\"Images a launch\"] svg')"
                  ".getAttribute('aria-label').includes('25 of ≤2')")
        page.wait("document.querySelector('section[aria-label=\"Refused by code and route\"] .legend span') !== null")
        self.assertRegex(self.plot(page, "Requests by route"), r"infer [\d.]+/s")
        self.assertRegex(self.plot(page, "Refused by code and route"), r": 400 infer [\d.]+/s$")
        self.assertRegex(self.plot(page, "Images by model and version"), r": digits 1 [\d.]+/s$")
        self.assertRegex(self.plot(page, "Computing by model and version"), r": digits 1 [\d.]+ s/s$")
        self.assertEqual(page.text("section[aria-label=Memory] .ticks").split("\n"), ["2 min ago", "1 min ago", "now"])
        self.assertRegex(page.text("section[aria-label=Memory] .top"), r"^\d+.* MiB$")
        self.assertIn("p99", self.plot(page, "Latency in the daemon"))
        self.assertRegex(self.plot(page, "Latency in the daemon"), r"p50 [\d.]+ (µ|m)?s, p90 [\d.]+ (µ|m)?s")
        self.assertRegex(self.plot(page, "Device use"), r"cpu [\d.]+ busy")
        self.assertRegex(self.plot(page, "Memory"), r"resident [\d.]+ MiB")
        self.assertRegex(self.plot(page, "Queue"), r"waiting 0, in flight 0")
        paths = page.run("[...document.querySelectorAll('.plot path')].map(p => p.getAttribute('d'))")
        self.assertGreaterEqual(sum(bool(path) for path in paths), 9)
        page.click("#pause")
        page.run("new Promise(done => setTimeout(done, 1300))")
        page.collect()
        asked = sum(url.endswith("/metrics") for url in page.requests)
        page.run("new Promise(done => setTimeout(done, 1300))")
        page.collect()
        self.assertEqual(sum(url.endswith("/metrics") for url in page.requests), asked)
        # The axis is of time: 300 wide for 120 s, so two samples around the pause are far from each other.
        page.click("#pause")
        page.wait("document.querySelector('#watch-state').textContent === 'live'")
        places = page.wait("(d => d.length > 2 && d.at(-1) - d.at(-2) > 6 && d)([...document.querySelector("
                           "'section[aria-label=Memory] path.line').getAttribute('d').matchAll(/[ML]([\\d.]+)/g)].map(m => +m[1]))")
        self.assertEqual(places[-1], 300)
        self.check_quiet(page)

    def test_a_server_that_goes_away(self):
        daemon = Daemon(f"{BUILD}/xnord")
        page = self.page("/#watch", daemon=daemon)
        page.wait("document.querySelector('#watch-state').textContent === 'live'")
        daemon.stop()
        page.wait("document.querySelector('#watch-state').textContent.includes('does not answer')")
        page.click("nav [data-view=try]")
        page.click("#kernel-1")
        page.wait("document.querySelector('#problem').checkVisibility()")


if __name__ == "__main__":
    unittest.main(verbosity=2)
