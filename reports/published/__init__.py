"""Published results: every result and settings table of three papers, as data.

FedCorr   Xu, Chen, Quek, Chong: FedCorr: Multi-Stage Federated Learning for Label Noise Correction,
          CVPR 2022. Results: Tables 2-6 and 9-13; settings: Tables 1, 7, 8.
LSG       Bai et al.: Overcoming Noisy Labels in Federated Learning Through Local Self-Guiding,
          CCGrid 2023. Results: Tables I-VI.
Fed-CNML  Wu et al.: Collaborative Network and Metric Learning Based Label Noise Robust Federated
          Learning Method, Computer Science 51(10), 2024. Results: Tables 2-5; settings: Table 1.

A result table is three files. `<name>.csv` has one line per printed cell, as printed. `<name>.yaml`
has the caption, metric, claims and footnotes. `conf/experiment/<name>.yaml` has the rows, the
columns and the overrides of every cell. Labels of two levels are joined by " / ", Greek letters are
spelled out. A settings table is one YAML file.

    from reports.published.tables import load_table

    table = load_table("fedcorr_table2")
    table.cell("Federated / Ours", "rho=0.4 / tau=0.5").value   # 94.15
    table.overrides("Federated / Ours", "rho=0.4 / tau=0.5")    # ("dataset=cifar10", ...)

Printed values are never corrected. `inconsistencies.csv` lists misprints and contradictions, which
become footnotes of their tables; the tests compute the same list from the tables.
"""
